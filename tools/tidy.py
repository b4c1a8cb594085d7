#!/usr/bin/env python3
"""Runs clang-tidy-16 over the project's sources that a build folder compiles.

A file that passed is not looked at again until it, a header of ours that it includes, or .clang-tidy
changes: the hash of all of them is kept under BUILD/tidy. Tests are left out, fixtures and macros of
GoogleTest would take half of the time. Usage: tidy.py BUILD [-j JOBS] [FILE...]
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import time

TOOL = "clang-tidy-16"
MAX_SECONDS = 240  # for one file; a check on data flow once took over nine minutes
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "apps", "include")


def sources(build: pathlib.Path) -> list[pathlib.Path]:
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    found = set()
    for entry in entries:
        path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        if (path.is_file() and path.is_relative_to(ROOT)
                and path.relative_to(ROOT).parts[0] in FOLDERS
                and not path.name.endswith("_test.cc")):
            found.add(path)
    return sorted(found)


def dependencies(build: pathlib.Path) -> dict[pathlib.Path, list[pathlib.Path]]:
    """Source -> headers of ours, as the last build recorded them."""
    log = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], capture_output=True, text=True,
                         check=False).stdout
    table = {}
    for block in log.split("\n\n"):
        names = [(build / line.strip()).resolve() for line in block.splitlines()[1:]]
        ours = [name for name in names if name.is_relative_to(ROOT) and name.is_file()]
        if ours:
            table[ours[0]] = ours[1:]
    return table


def fingerprint(path: pathlib.Path, headers: list[pathlib.Path] | None) -> str | None:
    if headers is None:  # never built: nothing is known about its headers
        return None
    digest = hashlib.sha256()
    for part in [ROOT / ".clang-tidy", path, *sorted(headers)]:
        digest.update(str(part.relative_to(ROOT)).encode() + b"\0" + part.read_bytes() + b"\0")
    return digest.hexdigest()


def tidy(build: pathlib.Path, path: pathlib.Path) -> tuple[pathlib.Path, bool, str]:
    try:
        run = subprocess.run([TOOL, "-p", str(build), "--quiet", str(path)], capture_output=True,
                             text=True, check=False, timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        return path, False, f"{path}: {TOOL} took over {MAX_SECONDS} s; a check that explodes?"
    noise = re.compile(r"^\d+ warnings? (generated|treated as error)", re.M)
    text = "\n".join(line for line in run.stdout.splitlines() if not noise.match(line))
    if run.returncode and not text:
        text = run.stderr
    return path, run.returncode == 0, text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    build = options.build.resolve()
    if not (build / "compile_commands.json").is_file():
        print(f"tidy: error: {options.build} is not a configured build folder: run `make build`")
        return 1
    table, passed = dependencies(build), build / "tidy"
    passed.mkdir(exist_ok=True)
    work, total = {}, 0
    for path in [f.resolve() for f in options.files] or sources(build):
        total += 1
        key = fingerprint(path, table.get(path))
        if key is None or not (passed / key).exists():
            work[path] = key
    start, failed = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for path, good, text in pool.map(lambda p: tidy(build, p), work):
            if good and work[path]:
                (passed / work[path]).touch()
            if not good:
                failed += 1
                print(text or f"{path}: {TOOL} failed", flush=True)
    print(f"tidy: {total} files, {len(work)} looked at in {time.monotonic() - start:.0f} s, "
          f"{failed} with findings")
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
