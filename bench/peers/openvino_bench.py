#!/usr/bin/env python3
"""Measures OpenVINO GenAI on a GGUF file in the manner of llama-bench; JSON on stdout.

    python openvino_bench.py -m FILE.gguf [-p 512] [-n 64] [-d 0,7168] [-t 2] [-r 3]

Prints [{"test": "pp512@0", "samples": [tokens/s, ...]}, ...]. Depth comes from the prefix cache: a
prompt that repeats the last one's front evaluates only what is new. `ppD@0` for each depth D > 0 is
the whole prompt of D tokens without any of it cached: its time is the time to the first token.
Ids are random, as llama-bench's. Needs the package openvino-genai.
"""

import argparse
import json
import sys

import numpy as np
import openvino
import openvino_genai

FIRST_ID, LAST_ID = 100, 30000  # away from control tokens, within every vocabulary of interest


class Bench:
    def __init__(self, options: argparse.Namespace):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = True
        scheduler.cache_size = 1  # GB; enough for several prompts of the largest depth
        self.pipeline = openvino_genai.LLMPipeline(
            options.model, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=options.threads)
        self.random = np.random.default_rng(0)

    def ids(self, count: int) -> np.ndarray:
        return self.random.integers(FIRST_ID, LAST_ID, count, dtype=np.int64)

    def generate(self, ids: np.ndarray, num_tokens: int):
        """Speed figures of one greedy run over `ids`."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = num_tokens
        config.ignore_eos = True
        config.apply_chat_template = False
        config.do_sample = False
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids[None]),
                                                openvino.Tensor(np.ones((1, len(ids)), np.int64)))
        metrics = self.pipeline.generate(inputs, config).perf_metrics
        if metrics.get_num_generated_tokens() != num_tokens:
            sys.exit(f"openvino_bench: error: {metrics.get_num_generated_tokens()} tokens came, "
                     f"{num_tokens} were asked for")
        return metrics

    def prefill(self, prefix: np.ndarray, count: int) -> float:
        """Tokens/s of `count` new tokens after `prefix`, which the cache should hold."""
        metrics = self.generate(np.concatenate([prefix, self.ids(count)]), 1)
        return count / metrics.get_ttft().mean * 1e3

    def decode(self, prefix: np.ndarray, count: int) -> float:
        # The first token belongs to the prompt's time; the others are what is measured.
        return 1e3 / self.generate(prefix, count + 1).get_tpot().mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=64)
    parser.add_argument("-d", "--depths", default="0,7168")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    options = parser.parse_args()
    bench = Bench(options)
    nothing = np.empty(0, np.int64)
    bench.generate(bench.ids(options.prompt), 8)  # warm-up
    rows = []

    def add(test: str, run) -> None:
        rows.append({"test": test, "samples": [run() for _ in range(options.repetitions)]})
        print(f"openvino {test} done", file=sys.stderr)

    for depth in map(int, options.depths.split(",")):
        if depth > 0:
            add(f"pp{depth}@0", lambda: bench.prefill(nothing, depth))
        prefix = bench.ids(depth)
        if depth > 0:
            bench.generate(prefix, 1)
        add(f"pp{options.prompt}@{depth}", lambda: bench.prefill(prefix, options.prompt))
        # At depth 0 a short prompt stands in, since one token at least is needed.
        start = prefix if depth > 0 else bench.ids(1)
        add(f"tg{options.generate}@{depth}", lambda: bench.decode(start, options.generate))
    json.dump(rows, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
