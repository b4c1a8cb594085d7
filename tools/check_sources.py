#!/usr/bin/env python3
"""Rules about source files that no compiler checks.

- every *_test.cc is named in the CMakeLists.txt of its folder or of one above: a test that is not
  registered never fails
- a source file has at most 400 lines
- no file names a path of somebody's machine
- text files end with a newline, without trailing blanks or tabs in C++

Usage: check_sources.py [REPOSITORY]
"""

import pathlib
import re
import subprocess
import sys

MAX_LINES = 400
CODE = {".h", ".cc", ".cpp", ".c", ".py", ".rs", ".sh", ".cmake", ".ts", ".tsx", ".js", ".css"}
CPP = {".h", ".cc", ".cpp", ".c"}
TEXT = CODE | {".md", ".txt", ".json", ".toml", ".yml", ".yaml", ".lock"}
# Home folders and work folders. A path under /tmp or /proc may be a legitimate constant.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home/[a-z]|root/|Users/[A-Z]|work/|tmp/work)")


def project_files(root: pathlib.Path) -> list[pathlib.Path]:
    """Files that git tracks or would track; without git, every file outside build folders."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=False)
    if listing.returncode == 0:
        names = [name for name in listing.stdout.decode().split("\0") if name]
    else:
        skip = {"build", "models", ".venv", "target", "node_modules", ".git"}
        names = [str(p.relative_to(root)) for p in root.rglob("*")
                 if not skip & set(p.relative_to(root).parts)]
    return [root / name for name in sorted(set(names)) if (root / name).is_file()]


def registered(path: pathlib.Path, root: pathlib.Path) -> bool:
    """Whether a CMakeLists.txt at or above the test's folder names it."""
    folder = path.parent
    while True:
        lists = folder / "CMakeLists.txt"
        if lists.is_file():
            code = re.sub(r"#.*", "", lists.read_text(encoding="utf-8"))
            if path.relative_to(folder).as_posix() in code.split() or re.search(
                    rf"(?<![\w/]){re.escape(path.relative_to(folder).as_posix())}(?!\w)", code):
                return True
        if folder == root:
            return False
        folder = folder.parent


def check_text(name: str, path: pathlib.Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return [f"{name}: not UTF-8"]
    problems = []
    lines = text.splitlines()
    if path.suffix in CODE and len(lines) > MAX_LINES:
        problems.append(f"{name}: {len(lines)} lines, at most {MAX_LINES}; split it by meaning")
    if text and not text.endswith("\n"):
        problems.append(f"{name}: no newline at the end")
    for number, line in enumerate(lines, 1):
        if MACHINE_PATH.search(line):
            problems.append(f"{name}:{number}: names a path of one machine: {line.strip()[:80]}")
        if path.suffix in CODE and line != line.rstrip():
            problems.append(f"{name}:{number}: trailing blanks")
        if path.suffix in CPP and "\t" in line:
            problems.append(f"{name}:{number}: tab")
    return problems


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    problems, files, tests = [], project_files(root), 0
    for path in files:
        name = path.relative_to(root).as_posix()
        if path.name.endswith("_test.cc"):
            tests += 1
            if not registered(path, root):
                problems.append(f"{name}: no CMakeLists.txt registers this test")
        plain = path.suffix in TEXT or path.name in {"Makefile", "CMakeLists.txt"} or ".ci" in path.parts
        if plain and path.stat().st_size < 4 << 20:
            problems += check_text(name, path)
    print("\n".join(problems + [
        f"check_sources: {len(files)} files, {tests} tests, {len(problems)} problems"]))
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
