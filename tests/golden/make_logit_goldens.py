#!/usr/bin/env python3
"""Writes oracle_logits.json and .bin: what the NumPy forward predicts over parts of real conversations.

    .venv/bin/python tests/golden/make_logit_goldens.py [--check]

A whole row of log-probabilities is 200 kB, so a row keeps its NUM_TOP best tokens and NUM_SAMPLES
tokens drawn, in proportion to their probability, from the rest (the tail). With these
KL(oracle || engine) has an unbiased estimate of tiny variance, as the engine's row is known whole:

    sum over the top of p (log p - log q)
    + P * mean over the samples of (r - 1 - log r), r = q / p
    - (Q - P),                      P, Q: the tail's mass for the oracle and for the engine

The middle term is the tail's KL with the mean of r - 1, which is known to be (Q - P) / P, taken out;
what is left to chance is quadratic in log r. --check prints the estimate beside the whole sum for
activations rounded to 8 bits, which is a perturbation of the size that the test must judge.

Layout of the .bin: per row float32 log p [NUM_TOP] best first, float32 log p [NUM_SAMPLES], uint16
ids [NUM_TOP], uint16 ids [NUM_SAMPLES], little-endian; rows of all segments one after the other.
Texts and ids stay outside the repository: the .json names message ranges and the SHA-256 of their ids.
"""

import argparse
import hashlib
import json
import pathlib

import numpy as np

import conversations
import numpy_forward

HERE = pathlib.Path(__file__).parent
NUM_TOP = 32
NUM_SAMPLES = 16
# (file, conversation, first message, last message, at most so many tokens): a dialogue with tools, an
# agent among long tool outputs, dense facts, and Chinese, where tokens are pieces of characters.
SEGMENTS = [
    ("dialog_en.jsonl", "sgd_test_21_00027", 0, 14, 900),
    ("agent_en.jsonl", "tau_airline_t03_r1", 5, 13, 1000),
    ("longqa_en.jsonl", "bfcl_memory_notetaker", 0, 12, 600),
    ("dialog_zh.jsonl", "crosswoz_test_3472", 1, 6, 500),
]


def compact(logits: np.ndarray, rng: np.random.Generator):
    """(log p [rows, top], log p [rows, samples], ids, ids) of rows of logits."""
    z = logits.astype(np.float64)
    z -= z.max(axis=-1, keepdims=True)
    z -= np.log(np.exp(z).sum(axis=-1, keepdims=True))
    top = np.argsort(-z, axis=-1, kind="stable")[:, :NUM_TOP]
    samples = np.empty((len(z), NUM_SAMPLES), np.int64)
    for row, ids in enumerate(top):
        tail = np.exp(z[row])
        tail[ids] = 0.0
        samples[row] = rng.choice(tail.size, NUM_SAMPLES, p=tail / tail.sum())
    return (np.take_along_axis(z, top, -1).astype("<f4"),
            np.take_along_axis(z, samples, -1).astype("<f4"), top.astype("<u2"), samples.astype("<u2"))


def estimate_kl(golden, logits: np.ndarray) -> np.ndarray:
    """The estimate of the docstring, for each row."""
    top_p, sample_p, top, samples = golden
    q = numpy_forward.log_softmax(logits.astype(np.float64))
    q_top = np.take_along_axis(q, top.astype(np.int64), -1)
    log_r = np.take_along_axis(q, samples.astype(np.int64), -1) - sample_p
    p_tail, q_tail = 1.0 - np.exp(top_p.astype(np.float64)).sum(-1), 1.0 - np.exp(q_top).sum(-1)
    return ((np.exp(top_p) * (top_p - q_top)).sum(-1)
            + p_tail * (np.exp(log_r) - 1.0 - log_r).mean(-1) - (q_tail - p_tail))


def round_to_8_bits(_name, _layer, x: np.ndarray) -> np.ndarray:
    groups = x.reshape(-1, 32)
    scale = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    return (np.round(groups / np.where(scale == 0, 1, scale)) * scale).reshape(x.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare estimate and whole sum")
    args = parser.parse_args()
    path = conversations.model_path()
    text, model = conversations.ModelText(path), numpy_forward.Model(str(path))
    assert model.vocab_size <= 65536, "ids are stored in 16 bits"
    segments, parts, check = [], [], []
    for number, (file, id, first, last, most) in enumerate(SEGMENTS):
        ids = text.conversation_ids(file, id, first, last)[:most]
        rng = np.random.default_rng(number)
        exact = model.hidden(ids)
        rounded = model.hidden(ids, round_to_8_bits) if args.check else None
        for begin in range(0, len(ids), 128):
            rows = slice(begin, begin + 128)
            logits = model.head(exact[rows])
            parts.append(compact(logits, rng))
            if args.check:
                other = model.head(rounded[rows], round_to_8_bits)
                check.append((estimate_kl(parts[-1], other), numpy_forward.kl_divergence(logits, other),
                              logits.argmax(-1) == other.argmax(-1)))
        segments.append({"file": file, "id": id, "first": first, "last": last, "num_tokens": len(ids),
                         "ids_sha256": conversations.ids_digest(ids)})
        print(segments[-1], flush=True)
    tail = np.concatenate([1.0 - np.exp(p[0].astype(np.float64)).sum(-1) for p in parts])
    print(f"{len(tail)} rows, mean mass outside the top {NUM_TOP}: {tail.mean():.3f}")
    if args.check:
        estimate, whole, same = (np.concatenate(c) for c in zip(*check))
        print(f"8-bit activations: mean KL {whole.mean():.3e}, estimated {estimate.mean():.3e}, "
              f"largest difference in a row {np.abs(estimate - whole).max():.1e}, top-1 {same.mean():.4f}")
        return
    with open(HERE / "oracle_logits.bin", "wb") as f:
        for part in parts:
            row_bytes = [a.reshape(len(a), -1).view(np.uint8) for a in map(np.ascontiguousarray, part)]
            f.write(np.concatenate(row_bytes, axis=1).tobytes())
    golden = {"model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "vocab_size": model.vocab_size, "num_top": NUM_TOP,
              "num_samples": NUM_SAMPLES, "segments": segments}
    with open(HERE / "oracle_logits.json", "w", encoding="utf-8") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
