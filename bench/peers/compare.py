#!/usr/bin/env python3
"""Runs `intentkv bench`, `llama-bench` and OpenVINO GenAI in turns on one model; prints the ratios.

In turns, since other work on the machine disturbs all alike then: a round is one run of each engine at
one depth; figures are medians over all rounds' samples. llama.cpp gets the best of its settings: a
short trial of every combination of file (as it is, and re-quantised to Q4_0, for which it has its best
kernels) and flash attention chooses one for each test. OpenVINO GenAI re-quantises the file itself.

Ratios are to the better peer that was measured, except where the target names llama.cpp or ourselves.
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile

Samples = dict[str, list[float]]  # tokens/s by test, "pp512@0", "tg64@7168"


@dataclasses.dataclass
class Row:
    """One line of the table: a speed and what it should be in relation to others."""
    name: str
    test: str
    target: float
    peers: tuple[str, ...]
    is_time: bool = False  # shown as seconds for the whole test instead of tokens/s


def resident_mb(pid: int) -> float | None:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


def run_json(command: list[str]) -> tuple[list[dict], float]:
    """The command's JSON, and the median of its resident size in MB over the last third of its run:
    loading, and the measuring of the machine that our bench begins with, are over by then."""
    resident: list[float] = []
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with subprocess.Popen(command, stdout=out, stderr=err) as process:
            while True:
                try:
                    process.wait(timeout=0.1)
                    break
                except subprocess.TimeoutExpired:
                    size = resident_mb(process.pid)
                    if size is not None:
                        resident.append(size)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            sys.exit(f"compare: error: {' '.join(command)}: exit {process.returncode}\n"
                     f"{err.read()[-2000:]}")
        late = resident[len(resident) * 2 // 3:]
        return json.loads(out.read()), statistics.median(late) if late else 0.0


def sizes(options: argparse.Namespace, prompt: int, generate: int, depth: int) -> list[str]:
    return ["-p", str(prompt), "-n", str(generate), "-d", str(depth), "-t", str(options.threads), "-r",
            str(options.repetitions)]


class Ours:
    def __init__(self, options: argparse.Namespace, name: str = "intentkv", flags: str = ""):
        self.options, self.name = options, name
        self.flags = [*options.our_flags.split(), *flags.split()]

    def measure(self, prompt: int, generate: int, depth: int) -> tuple[Samples, float]:
        rows, rss = run_json([self.options.ours, "bench", "-m", self.options.model, "--json", *self.flags,
                              *sizes(self.options, prompt, generate, depth)])
        return {row["test"]: row["samples"] for row in rows}, rss


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, options: argparse.Namespace):
        self.options = options
        files = [options.model, *([options.llama_q4_0] if options.llama_q4_0 else [])]
        self.settings = [["-m", file, "-fa", fa] for file in files for fa in ("0", "1")]
        self.best: dict[tuple[str, int], list[str]] = {}  # by test and depth

    def bench(self, settings: list[str], arguments: list[str], depth: int) -> tuple[Samples, float]:
        rows, rss = run_json([self.options.llama_bench, "-o", "json", *settings, *arguments])
        samples = {}
        for row in rows:
            test = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
            samples[f"{test}@{depth}"] = row["samples_ts"]
        return samples, rss

    def measure(self, prompt: int, generate: int, depth: int) -> tuple[Samples, float]:
        parts = [(f"pp{prompt}", prompt, 0)] if prompt else []
        parts += [(f"tg{generate}", 0, generate)] if generate else []
        for test, p, n in parts:
            if (test, depth) not in self.best:
                self.best[test, depth] = self.try_settings(test, p, n, depth)
        settings = [self.best[test, depth] for test, _, _ in parts]
        if len(parts) == 2 and settings[0] == settings[1]:  # the depth is filled once for both
            parts, settings = [("", prompt, generate)], settings[:1]
        samples: Samples = {}
        largest = 0.0
        for (_, p, n), chosen in zip(parts, settings):
            measured, rss = self.bench(chosen, sizes(self.options, p, n, depth), depth)
            samples |= measured
            largest = max(largest, rss)
        return samples, largest

    def try_settings(self, test: str, prompt: int, generate: int, depth: int) -> list[str]:
        """The settings with the best speed in one short run each. Far down, where a run takes a
        minute, only with the file that was best for this kind of test at the start."""
        settings = self.settings
        if depth > 0 or prompt > self.options.prompt:
            kind = f"pp{self.options.prompt}" if prompt else f"tg{self.options.generate}"
            if (kind, 0) in self.best:
                settings = [s for s in settings if s[1] == self.best[kind, 0][1]]
        if len(settings) == 1:
            return settings[0]
        short = sizes(self.options, prompt, min(generate, 16), depth)
        short[short.index("-r") + 1] = "1"
        speeds = []
        for one in settings:
            samples, _ = self.bench(one, short, depth)
            speeds.append(statistics.median(next(iter(samples.values()))))
        best = settings[speeds.index(max(speeds))]
        print(f"  llama.cpp {test}@{depth}: best with {' '.join(best[2:])} on "
              f"{os.path.basename(best[1])}", file=sys.stderr)
        return best

    def memory_mb(self, depth: int, generate: int) -> float:
        """Resident memory with 8-bit keys and values at `depth`, on the file as it is."""
        arguments = sizes(self.options, 0, generate, depth)
        arguments[arguments.index("-r") + 1] = "1"
        return self.bench(["-m", self.options.model, "-fa", "1", "-ctk", "q8_0", "-ctv", "q8_0"],
                          arguments, depth)[1]


class OpenVino:
    name = "openvino"

    def __init__(self, options: argparse.Namespace):
        self.options = options

    def measure(self, depths: str) -> Samples:
        o = self.options
        script = os.path.join(os.path.dirname(__file__), "openvino_bench.py")
        rows, _ = run_json([o.openvino_python, script, "-m", o.model, "-p", str(o.prompt), "-n",
                            str(o.generate), "-d", depths, "-t", str(o.threads), "-r",
                            str(o.repetitions)])
        return {row["test"]: row["samples"] for row in rows}


def add(total: Samples, more: Samples) -> None:
    for test, samples in more.items():
        total.setdefault(test, []).extend(samples)


def measure_all(options: argparse.Namespace) -> tuple[dict[str, Samples], dict[str, float]]:
    """Samples by engine and test, and resident memory at the depth by engine."""
    engines: list[Ours | LlamaCpp] = [Ours(options)]
    pruned = Ours(options, "pruned", options.pruned_flags)
    if options.llama_bench:
        engines.append(LlamaCpp(options))
    samples: dict[str, Samples] = {engine.name: {} for engine in [*engines, pruned]}
    memory: dict[str, float] = {}
    depth = options.depth
    if options.openvino_python:
        samples[OpenVino.name] = {}
    for number in range(options.rounds):
        print(f"== round {number + 1} of {options.rounds}", file=sys.stderr)
        for prompt, generate, at in ((options.prompt, options.generate, 0), (depth, 0, 0),
                                     (options.prompt, options.generate, depth)):
            for engine in engines:
                add(samples[engine.name], engine.measure(prompt, generate, at)[0])
        add(samples["pruned"], pruned.measure(0, options.generate, depth)[0])
        if options.openvino_python:
            add(samples[OpenVino.name], OpenVino(options).measure(f"0,{depth}"))
    memory["intentkv"] = Ours(options).measure(0, options.generate, depth)[1]
    for engine in engines:
        if isinstance(engine, LlamaCpp):
            memory[engine.name] = engine.memory_mb(depth, options.generate)
    return samples, memory


def table_rows(options: argparse.Namespace) -> list[Row]:
    p, n, d = options.prompt, options.generate, options.depth
    both = (LlamaCpp.name, OpenVino.name)
    return [
        Row(f"prefill {p} @0", f"pp{p}@0", 1.5, both),
        Row(f"prefill {p} @{d}, exact", f"pp{p}@{d}", 4.0, (LlamaCpp.name,)),
        Row(f"first token after {d}", f"pp{d}@0", 2.0, both, is_time=True),
        Row("decode @0", f"tg{n}@0", 1.6, both),
        Row(f"decode @{d}, all attended", f"tg{n}@{d}", 3.5, both),
    ]


def report(options: argparse.Namespace, samples: dict[str, Samples], memory: dict[str, float]) -> list:
    median = {engine: {test: statistics.median(values) for test, values in tests.items()}
              for engine, tests in samples.items()}
    table = []

    def line(name: str, values: list[float | None], ratio: float | None, target: float) -> None:
        cells = ["–" if v is None else f"{v:.1f}" for v in values]
        shown = "–" if ratio is None else f"{ratio:.2f}"
        verdict = "" if ratio is None else "yes" if ratio >= target else "no"
        print(f"| {name:34} | {cells[0]:>8} | {cells[1]:>9} | {cells[2]:>8} | {shown:>5} | "
              f"{target:5.2f} | {verdict:3} |")
        table.append({"row": name, "intentkv": values[0], "llama.cpp": values[1],
                      "openvino": values[2], "ratio": ratio, "target": target})

    print(f"\n{options.model}, {options.threads} threads, {options.rounds} rounds of "
          f"{options.repetitions} repetitions, load {os.getloadavg()[0]:.1f}; tokens/s\n")
    print(f"| {'':34} | intentkv | llama.cpp | openvino | ratio |  goal | met |")
    print(f"|{'-' * 36}|---------:|----------:|---------:|------:|------:|-----|")
    names = ("intentkv", LlamaCpp.name, OpenVino.name)
    for row in table_rows(options):
        speeds = [median.get(engine, {}).get(row.test) for engine in names]
        peers = [s for engine, s in zip(names, speeds) if engine in row.peers and s is not None]
        ratio = speeds[0] / max(peers) if peers else None
        if row.is_time:
            speeds = [None if s is None else options.depth / s for s in speeds]
        line(row.name + (", s" if row.is_time else ""), speeds, ratio, row.target)
    test = f"tg{options.generate}@{options.depth}"
    pruned, ours_at_0 = median["pruned"][test], median["intentkv"][f"tg{options.generate}@0"]
    speeds = [pruned, *(median.get(engine, {}).get(test) for engine in names[1:])]
    peers = [s for s in speeds[1:] if s is not None]
    line(f"decode @{options.depth}, {options.pruned_name}", speeds,
         pruned / max(peers) if peers else None, 5.0)
    line("  the same to our decode @0", [pruned, None, None], pruned / ours_at_0, 0.7)
    theirs = memory.get(LlamaCpp.name)
    line(f"MB resident @{options.depth}, 8-bit cache", [memory["intentkv"], theirs, None],
         theirs / memory["intentkv"] if theirs else None, 1 / 0.75)
    return table


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", required=True, help="intentkv")
    parser.add_argument("--llama-bench", help="llama-bench; left out if not given")
    parser.add_argument("--llama-q4_0", help="the model re-quantised to Q4_0, see requantise.py")
    parser.add_argument("--openvino-python", help="Python with openvino-genai; left out if not given")
    parser.add_argument("-m", "--model", default="models/smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=64)
    parser.add_argument("-d", "--depth", type=int, default=7168)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--repetitions", type=int, default=2, help="samples a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--our-flags", default="", help="such as '--cache-type-k f16'")
    parser.add_argument("--pruned-flags",
                        default="--kv-policy intent --kv-attend 12.5% --kv-resident all")
    parser.add_argument("--pruned-name", default="attend 12.5 %")
    parser.add_argument("--json-file", help="write samples and table here as well")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"compare: warning: other work is running (load {load:.1f}); engines whose threads wait "
              "for each other suffer most from it, so ratios are not to be trusted", file=sys.stderr)
    samples, memory = measure_all(options)
    table = report(options, samples, memory)
    if options.json_file:
        with open(options.json_file, "w", encoding="utf-8") as file:
            json.dump({"options": vars(options), "table": table, "memory_mb": memory,
                       "samples": samples}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
