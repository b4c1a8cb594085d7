"""Runs the program under test. Each test file gets its path as the first argument."""

import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = pathlib.Path(os.environ.get("IKV_TEST_MODEL",
                                    ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf"))
PROGRAM = ""


class Case(unittest.TestCase):
    def run_program(self, *arguments, stdin=b"", timeout=120):
        """(exit code, standard output, standard error) as text."""
        done = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True,
                              timeout=timeout, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def refused(self, code, words, *arguments, stdin=b""):
        """Exit `code`, nothing on stdout, exactly one line on stderr that holds all `words`."""
        got, out, err = self.run_program(*arguments, stdin=stdin)
        shown = f"{arguments}: exit {got}\n{err}"
        self.assertEqual(got, code, shown)
        self.assertEqual(out, "", shown)
        self.assertTrue(err.startswith("intentkv: error: "), shown)
        self.assertEqual(err.count("\n"), 1, shown)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, err, shown)


def main():
    global PROGRAM
    PROGRAM = sys.argv.pop(1)
    unittest.main(module="__main__", verbosity=2)
