#!/usr/bin/env python3
"""Shows that the layer lint and the source lint catch what they are for: each rule is broken once."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent
GOOD = {
    "src/base/a.h": "#pragma once\n#include <string>\n",
    "src/core/c.h": '#include "base/a.h"\n',
    "src/kv/k.h": '#include "core/c.h"\n#include "quant/q.h"\n#include "kv/other.h"\n',
    "src/engine/e.cc": '#include "kv/k.h"\n#include "text/t.h"\n#include "intentkv/engine.h"\n',
    "include/intentkv/engine.h": '#include <string>\n#include "intentkv/result.h"\n',
}


def run(tool: str, files: dict[str, str]) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, TOOLS / tool, folder], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout + done.stderr


class LayerLint(unittest.TestCase):
    def refused(self, name: str, include: str, words: str) -> None:
        code, text = run("check_layers.py", GOOD | {name: f"\n#include {include}\n"})
        self.assertEqual(code, 1, text)
        self.assertIn(f"{name}:2: ", text)
        self.assertIn(words, text)

    def test_arrows_downwards_pass(self) -> None:
        code, text = run("check_layers.py", GOOD)
        self.assertEqual(code, 0, text)

    def test_arrow_upwards_is_refused(self) -> None:
        self.refused("src/kv/up.cc", '"engine/e.h"', "wrong way (kv -> engine)")
        self.refused("src/base/up.cc", '"core/c.h"', "wrong way (base -> core)")
        self.refused("src/core/up.h", '"gguf/reader.h"', "wrong way (core -> gguf)")
        self.refused("src/gguf/up.cc", '<quant/types.h>', "wrong way (gguf -> quant)")

    def test_siblings_do_not_include_each_other(self) -> None:
        self.refused("src/kv/side.cc", '"intent/intent.h"', "siblings")

    def test_unknown_folder_is_refused(self) -> None:
        code, text = run("check_layers.py", GOOD | {"src/misc/x.h": "\n"})
        self.assertEqual(code, 1)
        self.assertIn("src/misc: not a layer", text)

    def test_public_api_includes_only_std(self) -> None:
        self.refused("include/intentkv/bad.h", '"base/a.h"', "public API")

    def test_relative_include_is_refused(self) -> None:
        self.refused("src/kv/rel.cc", '"../base/a.h"', "rooted at src/")


class SourceLint(unittest.TestCase):
    def refused(self, files: dict[str, str], words: str) -> None:
        code, text = run("check_sources.py", GOOD | files)
        self.assertEqual(code, 1, text)
        self.assertIn(words, text)

    def test_good_tree_passes(self) -> None:
        code, text = run("check_sources.py", GOOD | {
            "src/kv/a_test.cc": "\n", "src/kv/CMakeLists.txt": "ikv_test(NAME a_test SRCS a_test.cc)\n"})
        self.assertEqual(code, 0, text)

    def test_unregistered_test_is_found(self) -> None:
        lists = "# a_test.cc\nikv_test(NAME aa_test SRCS aa_test.cc)\n"
        self.refused({"src/kv/a_test.cc": "\n", "src/kv/CMakeLists.txt": lists},
                     "src/kv/a_test.cc: no CMakeLists.txt registers this test")

    def test_long_file_is_found(self) -> None:
        self.refused({"src/kv/long.cc": "int a;\n" * 401}, "401 lines, at most 400")

    def test_machine_path_is_found(self) -> None:
        self.refused({"docs/x.md": "see " + "/" + "home/someone/x\n"}, "path of one machine")

    def test_missing_newline_and_trailing_blanks_are_found(self) -> None:
        self.refused({"src/kv/x.cc": "int a;"}, "no newline at the end")
        self.refused({"src/kv/x.cc": "int a; \n"}, "trailing blanks")


if __name__ == "__main__":
    unittest.main()
