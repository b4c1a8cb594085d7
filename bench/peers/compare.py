#!/usr/bin/env python3
"""Runs `intentkv bench` and `llama-bench` in turns on the same file and prints speeds and ratios.

In turns, since other work on the machine disturbs both alike then. Each round is one run of each
program at one depth; the figures are medians over the rounds' medians.
"""

import argparse
import json
import statistics
import subprocess
import sys


def run_json(command: list[str]) -> list[dict]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"compare: error: {' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def ours(options: argparse.Namespace, depth: int) -> dict[str, float]:
    rows = run_json([options.ours, "bench", "-m", options.model, "-p", str(options.prompt), "-n",
                     str(options.generate), "-d", str(depth), "-t", str(options.threads), "-r",
                     str(options.repetitions), "--json", *options.our_flags.split()])
    return {row["test"]: row["tokens_per_second"] for row in rows}


def llama(options: argparse.Namespace, depth: int) -> dict[str, float]:
    rows = run_json([options.llama_bench, "-m", options.model, "-p", str(options.prompt), "-n",
                     str(options.generate), "-d", str(depth), "-t", str(options.threads), "-r",
                     str(options.repetitions), "-o", "json", *options.llama_flags.split()])
    result = {}
    for row in rows:
        name = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
        result[f"{name}@{depth}"] = statistics.median(row["samples_ts"])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", required=True)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("-m", "--model", default="models/smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=64)
    parser.add_argument("-d", "--depths", default="0,7168")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--our-flags", default="", help="such as '--cache-type-k f16'")
    parser.add_argument("--llama-flags", default="", help="such as '-fa 1 -ctk q8_0 -ctv q8_0'")
    parser.add_argument("--json-file")
    options = parser.parse_args()

    samples: dict[str, tuple[list[float], list[float]]] = {}
    for depth in map(int, options.depths.split(",")):
        for _ in range(options.rounds):
            mine, theirs = ours(options, depth), llama(options, depth)
            for test in mine:
                pair = samples.setdefault(test, ([], []))
                pair[0].append(mine[test])
                pair[1].append(theirs[test])
    print(f"{options.model}, {options.threads} threads, {options.rounds} rounds of "
          f"{options.repetitions} repetitions, tokens/s\n")
    print("| test       | intentkv | llama.cpp | ratio |\n|------------|---------:|----------:|------:|")
    table = []
    for test, (mine, theirs) in samples.items():
        row = {"test": test, "intentkv": statistics.median(mine), "llama.cpp": statistics.median(theirs)}
        row["ratio"] = row["intentkv"] / row["llama.cpp"]
        table.append(row)
        print(f"| {test:10} | {row['intentkv']:8.1f} | {row['llama.cpp']:9.1f} | {row['ratio']:5.2f} |")
    if options.json_file:
        with open(options.json_file, "w", encoding="utf-8") as file:
            json.dump({"options": vars(options), "rows": table}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
