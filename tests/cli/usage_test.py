"""Wrong command lines and wrong files: one clear line, the right exit code, never a crash."""

import os
import pathlib
import struct
import tempfile

import program

COMMANDS = ("generate", "chat", "bench", "inspect", "model", "eval-logits")


class Usage(program.Case):
    def test_help_has_examples_and_exit_code_0(self):
        for arguments in [["--help"]] + [[name, "--help"] for name in ("generate", "chat", "bench")]:
            code, out, err = self.run_program(*arguments)
            self.assertEqual((code, err), (0, ""), arguments)
            self.assertIn("Examples:", out)
        for name in COMMANDS:
            self.assertEqual(self.run_program(name, "--help")[0], 0, name)

    def test_version(self):
        code, out, _ = self.run_program("--version")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"^intentkv \d+\.\d+\.\d+\n$")

    def test_missing_and_unknown_commands(self):
        self.refused(2, "intentkv --help")
        self.refused(2, "unknown command 'frobnicate'", "frobnicate")
        self.refused(2, "--frobnicate", "generate", "-m", "x.gguf", "--frobnicate")
        self.refused(2, "--model", "generate", "-p", "x")

    def test_absurd_flags_are_named(self):
        for flag, value in [("--threads", "-3"), ("--threads", "0"), ("--threads", "9999999999999"),
                            ("--ctx-size", "0"), ("--ctx-size", "-1"), ("--temp", "nan"),
                            ("--temp", "-1"), ("--top-p", "7"), ("--top-k", "-4"),
                            ("--n-predict", "1e9"), ("--seed", "x"), ("--kv-memory", "-5MiB"),
                            ("--cache-type-k", "int3"), ("--logit-bias", "nothing")]:
            for command in ("generate", "chat"):
                self.refused(2, [flag, f"{command} --help"], command, "-m", "x.gguf", flag, value)
        for flag, value in [("-r", "0"), ("-p", "-1"), ("-d", "512,nan"), ("-n", "")]:
            self.refused(2, "bench --help", "bench", "-m", "x.gguf", flag, value)

    def test_prompt_given_twice(self):
        self.refused(2, ["--prompt", "--file"], "generate", "-m", "x.gguf", "-p", "a", "-f", "b")

    def test_missing_prompt_file(self):
        self.refused(1, "/nonexistent/prompt", "generate", "-m", "x.gguf", "-f", "/nonexistent/prompt")


class BadModelFiles(program.Case):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, data, name="bad.gguf"):
        path = pathlib.Path(self.folder.name) / name
        path.write_bytes(data)
        return path

    def refused_by_all(self, path, words):
        words = [words] if isinstance(words, str) else words
        self.refused(1, words, "generate", "-m", path, "-p", "x")
        self.refused(1, words, "chat", "-m", path, stdin=b"x\n")
        self.refused(1, words, "inspect", path)
        self.refused(1, words, "bench", "-m", path)

    def test_missing_file(self):
        self.refused_by_all("/nonexistent/model.gguf", "/nonexistent/model.gguf")

    def test_directory(self):
        self.refused_by_all(self.folder.name, self.folder.name)

    def test_empty_and_foreign_files(self):
        self.refused_by_all(self.file(b""), "bad.gguf")
        self.refused_by_all(self.file(b"PK\x03\x04" + bytes(4000)), "bad.gguf")

    def test_hostile_counts(self):
        header = struct.pack("<4sIQQ", b"GGUF", 3, 2**63, 2**63)
        self.refused_by_all(self.file(header + bytes(256)), "bad.gguf")
        header = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)
        self.refused_by_all(self.file(header + struct.pack("<Q", 2**64 - 1) + bytes(64)), "bad.gguf")

    def test_name_with_control_characters_stays_one_line(self):
        self.refused(1, "\\n", "inspect", "/nonexistent/a\nb.gguf")

    def test_no_permission(self):
        if os.geteuid() == 0:
            self.skipTest("root may read every file")
        path = self.file(b"GGUF")
        path.chmod(0)
        self.refused_by_all(path, ["bad.gguf", "ermission"])


if __name__ == "__main__":
    program.main()
