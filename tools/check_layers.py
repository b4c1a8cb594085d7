#!/usr/bin/env python3
"""Fails when an #include goes against the arrows of docs/architecture.md.

Reads every C++ file under src/, looks at includes rooted at src/ ("folder/file.h") and compares the
two folders. Usage: check_layers.py [REPOSITORY]
"""

import pathlib
import re
import sys

SIBLINGS = {"text", "session", "intent", "relevance", "pruning", "kv", "model", "sampling"}
# Height of a folder: includes go strictly down, or stay inside the folder. `core` holds the structs
# that the siblings exchange, so it stands just above base. `server` is on top.
HEIGHT = {"base": 0, "core": 1, "gguf": 2, "quant": 3, "ops": 4, "attention": 5}
HEIGHT.update({name: 6 for name in SIBLINGS})
# Fitting at first load needs a model, a tokenizer and the codes of kv; the engine calls it.
HEIGHT.update({"calibration": 7, "engine": 8, "server": 9})
# The plain C++ API that users include: any layer may use it, it uses the standard library only.
PUBLIC = "intentkv"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
SUFFIXES = {".h", ".cc", ".cpp", ".hpp", ".inc", ".c"}


def fault(folder: str, target: str) -> str | None:
    """What is wrong with `folder` including something of `target`, or None."""
    if target not in HEIGHT or target == folder:
        return None
    if HEIGHT[target] < HEIGHT[folder]:
        return None
    if target in SIBLINGS and folder in SIBLINGS:
        return f"siblings do not include each other; exchange structs through src/core ({folder} -> {target})"
    return f"the arrow goes the wrong way ({folder} -> {target})"


def check_file(path: pathlib.Path, root: pathlib.Path, folder: str) -> list[str]:
    problems = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        where = f"{path.relative_to(root)}:{number}"
        if ".." in pathlib.PurePosixPath(name).parts:
            problems.append(f"{where}: include paths are rooted at src/, without '..': {name}")
        target = name.split("/")[0]
        if folder == PUBLIC:
            if quote == '"' and target != PUBLIC or target in HEIGHT and "/" in name:
                problems.append(f"{where}: the public API includes only std and intentkv/: {name}")
        elif "/" in name:
            message = fault(folder, target)
            if message:
                problems.append(f"{where}: {message}")
    return problems


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    problems, files = [], 0
    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        if folder.name not in HEIGHT:
            problems.append(f"src/{folder.name}: not a layer that tools/check_layers.py knows")
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix in SUFFIXES:
                files += 1
                problems += check_file(path, root, folder.name)
    for path in sorted((root / "include" / PUBLIC).rglob("*.h")):
        files += 1
        problems += check_file(path, root, PUBLIC)
    print("\n".join(problems + [f"check_layers: {files} files, {len(problems)} problems"]))
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
