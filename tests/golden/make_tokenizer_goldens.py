"""Makes the tokenizer goldens: the ids that llama.cpp gives for the texts of tokenizer_strings.py.

    python make_tokenizer_goldens.py --llama-tokenize PATH [--model smollm2.gguf]

Writes tokenizer_small.json (two small vocabularies, trained here, whole, with ids for each
pre-tokenizer) and, with --model, tokenizer_smollm2.json. Needs: gguf, numpy, tokenizers, sentencepiece.
"""

import argparse
import io
import json
import pathlib
import subprocess
import tempfile

import gguf
import sentencepiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import tokenizer_strings

HERE = pathlib.Path(__file__).parent
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
PRE_TOKENIZERS = ["smollm", "gpt-2", "qwen2", "llama-bpe", "default"]


def train_bpe():
    """A byte-level BPE vocabulary of 900 tokens with ChatML's marks and one user-defined token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(tokenizer_strings.training_text(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocab = sorted(model["vocab"].items(), key=lambda item: item[1])
    tokens = [text for text, _ in vocab] + ["<tool_call>"]
    types = [CONTROL] * 3 + [NORMAL] * (len(tokens) - 4) + [USER_DEFINED]
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    return {"tokens": tokens, "types": types, "merges": merges, "bos": 1, "eos": 2}


def train_spm():
    """A SentencePiece BPE vocabulary of 900 tokens with byte fallback."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(tokenizer_strings.training_text()),
        model_writer=model,
        model_type="bpe",
        vocab_size=900,
        character_coverage=0.98,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        user_defined_symbols=["<tool_call>", "\n\n"],
        control_symbols=["<start_of_turn>", "<end_of_turn>"],
        num_threads=1,
        minloglevel=2,
    )
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    tokens, scores, types = [], [], []
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    for piece in proto.pieces:
        tokens.append(piece.piece)
        scores.append(piece.score)
        types.append({1: NORMAL, 2: UNKNOWN, 3: CONTROL, 4: USER_DEFINED, 6: BYTE}[piece.type])
    return {
        "tokens": tokens, "types": types, "scores": scores,
        "bos": sp.bos_id(), "eos": sp.eos_id(), "unknown": sp.unk_id(),
    }


def write_vocab_gguf(path, vocab, model, pre, add_space_prefix=True):
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(64)
    writer.add_vocab_size(len(vocab["tokens"]))
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(vocab["tokens"])
    writer.add_token_types(vocab["types"])
    if "scores" in vocab:
        writer.add_token_scores(vocab["scores"])
        writer.add_unk_token_id(vocab["unknown"])
        writer.add_add_space_prefix(add_space_prefix)
    else:
        writer.add_token_merges(vocab["merges"])
    writer.add_bos_token_id(vocab["bos"])
    writer.add_eos_token_id(vocab["eos"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def llama_ids(binary, gguf_path, text: bytes, parse_special: bool):
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        command = [binary, "-m", str(gguf_path), "-f", file.name, "--ids", "--no-bos", "--no-escape",
               "--log-disable"]
        if not parse_special:
            command.append("--no-parse-special")
        result = subprocess.run(command, capture_output=True, check=True)
    return json.loads(result.stdout.decode().strip().splitlines()[-1])


def as_json(text: bytes):
    """A string, or {"hex": …} for what is not UTF-8."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"hex": text.hex()}


def golden(binary, path, texts):
    return {
        "plain": [llama_ids(binary, path, t, False) for t in texts],
        "special": [llama_ids(binary, path, t, True) for t in texts],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-tokenize", required=True)
    parser.add_argument("--model")
    args = parser.parse_args()
    # llama-tokenize refuses an empty prompt file.
    texts = [t for t in tokenizer_strings.strings() if t]
    short = texts[:190] + texts[-60:]
    if args.model:
        out = {"texts": [as_json(t) for t in texts], **golden(args.llama_tokenize, args.model, texts)}
        write_json(HERE / "tokenizer_smollm2.json", out)
    bpe, spm = train_bpe(), train_spm()
    out = {"texts": [as_json(t) for t in short], "bpe": bpe, "spm": spm, "ids": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "vocab.gguf"
        for pre in PRE_TOKENIZERS:
            write_vocab_gguf(path, bpe, "gpt2", pre)
            out["ids"][pre] = golden(args.llama_tokenize, path, short)
        for prefix in (True, False):
            write_vocab_gguf(path, spm, "llama", None, prefix)
            out["ids"]["spm" if prefix else "spm-no-prefix"] = golden(args.llama_tokenize, path, short)
    write_json(HERE / "tokenizer_small.json", out)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    print(path.name, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
