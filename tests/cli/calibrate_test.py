"""`intentkv model calibrate`: a real model's codebooks are fitted, kept and found again."""

import os
import pathlib
import re
import tempfile
import unittest

import program
from program import MODEL


class Refusals(program.Case):
    def test_wrong_flags_are_named(self):
        for flag, value in [("--kind", "sine"), ("--tokens", "1"), ("--tokens", "x"), ("--threads", "0")]:
            self.refused(2, [flag, "model --help"], "model", "calibrate", "-m", "x.gguf", flag, value)
        self.refused(2, "--model", "model", "calibrate")

    def test_missing_model_is_one_line(self):
        self.refused(1, "/nonexistent.gguf", "model", "calibrate", "-m", "/nonexistent.gguf")


@unittest.skipUnless(MODEL.is_file(), f"no model at {MODEL}: run `make model` or set IKV_TEST_MODEL")
class WithModel(program.Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = folder.name
        self.addCleanup(lambda: os.environ.update(XDG_CACHE_HOME=before) if before is not None
                        else os.environ.pop("XDG_CACHE_HOME"))

    def calibrate(self, *arguments):
        code, out, err = self.run_program("model", "calibrate", "-m", MODEL, "--tokens", "64", *arguments)
        self.assertEqual((code, err), (0, ""), out)
        return out

    def test_first_run_fits_the_second_finds_force_fits_again(self):
        first = self.calibrate()
        self.assertRegex(first, r"64 tokens of text, \d+ sample keys for each of \d+ heads")
        path = re.search(r"^(.*): written$", first, re.M).group(1)
        self.assertTrue(path.startswith(str(self.folder)), path)
        data = pathlib.Path(path).read_bytes()
        self.assertIn("already there and valid", self.calibrate())
        self.assertIn("written", self.calibrate("--force"))
        self.assertEqual(pathlib.Path(path).read_bytes(), data)

    def test_damaged_file_is_named_and_replaced(self):
        out = self.folder / "books"
        self.calibrate("--out", out)
        whole = out.read_bytes()
        out.write_bytes(whole[:-7])
        self.assertIn("books", self.calibrate("--out", out))
        self.assertEqual(out.read_bytes(), whole)

    def test_place_that_cannot_be_written_is_an_error(self):
        (self.folder / "file").write_text("in the way")
        code, _, err = self.run_program("model", "calibrate", "-m", MODEL, "--tokens", "64", "--out",
                                        self.folder / "file" / "books")
        self.assertEqual(code, 1)
        self.assertTrue(err.startswith("intentkv: error: ") and err.count("\n") == 1, err)
        self.assertIn("not saved", err)


if __name__ == "__main__":
    program.main()
