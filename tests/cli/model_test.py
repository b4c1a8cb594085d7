"""The program with a real model: text, JSON, pipes, a terminal."""

import json
import os
import pathlib
import pty
import select
import signal
import tempfile
import time
import unittest

import program
from program import MODEL

GREEDY = ("--temp", "0", "-c", "2048", "-t", "2")


class Terminal:
    """The program on a pseudo-terminal, as a person sees it."""

    def __init__(self, *arguments, home):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(HOME=home, TERM="xterm", LC_ALL="C.UTF-8")
            os.environ.pop("XDG_STATE_HOME", None)
            os.execv(program.PROGRAM, [program.PROGRAM, *map(str, arguments)])
        self.seen = ""

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, words, seconds=120):
        """Reads until `words` appear after what was waited for before; returns the text up to them."""
        end = time.monotonic() + seconds
        while words not in self.seen:
            if time.monotonic() > end:
                raise AssertionError(f"no {words!r} in {self.seen[-500:]!r}")
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")
                except OSError as error:
                    raise AssertionError(f"ended without {words!r}: {self.seen[-500:]!r}") from error
        before, _, self.seen = self.seen.partition(words)
        return before

    def wait_for_prompt(self):
        self.wait_for("> ")
        time.sleep(0.3)  # the prompt appears a moment before the terminal reads key by key

    def exit_code(self, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError("the program did not end")


@unittest.skipUnless(MODEL.is_file(), f"no model at {MODEL}: run `make model` or set IKV_TEST_MODEL")
class WithModel(program.Case):
    def generate(self, *arguments, stdin=b""):
        code, out, err = self.run_program("generate", "-m", MODEL, *GREEDY, *arguments, stdin=stdin)
        self.assertEqual(code, 0, err)
        return out

    def test_prompt_flag_pipe_and_file_give_the_same_text(self):
        prompt = "The capital of France is"
        with tempfile.NamedTemporaryFile() as file:
            file.write(prompt.encode())
            file.flush()
            texts = {self.generate("-p", prompt, "-n", "12"),
                     self.generate("-n", "12", stdin=prompt.encode()),
                     self.generate("-f", file.name, "-n", "12")}
        self.assertEqual(len(texts), 1)
        self.assertIn("Paris", texts.pop())

    def test_json_has_text_tokens_reason_usage_timings_logprobs(self):
        reply = json.loads(self.generate("-p", "One, two, three,", "-n", "6", "--json", "--logprobs", "3"))
        self.assertEqual(len(reply["tokens"]), 6)
        self.assertEqual(reply["finish_reason"], "length")
        self.assertEqual(reply["usage"]["completion_tokens"], 6)
        self.assertGreater(reply["timings"]["decode_tokens_per_second"], 0)
        self.assertEqual([len(row["top_logprobs"]) for row in reply["logprobs"]], [3] * 6)
        for row in reply["logprobs"]:  # greedy: the chosen one is the likeliest
            self.assertEqual(row["id"], row["top_logprobs"][0]["id"])
            self.assertLessEqual(row["logprob"], 0)

    def test_same_seed_same_text_other_seed_other_text(self):
        def text(seed):
            return self.run_program("generate", "-m", MODEL, "-c", "2048", "-p", "Once upon a time", "-n",
                                    "24", "--temp", "1.0", "--seed", seed)[1]
        self.assertEqual(text(7), text(7))
        self.assertNotEqual(text(7), text(8))

    def test_stop_text_ends_the_reply_before_it(self):
        reply = json.loads(self.generate("-p", "1 2 3 4 5 6", "-n", "40", "--json", "--stop", "10"))
        self.assertEqual(reply["finish_reason"], "stop")
        self.assertNotIn("10", reply["text"])
        self.assertIn("9", reply["text"])

    def test_odd_prompts_are_answered_or_refused_but_never_crash(self):
        for prompt in [b"", b"\0", b"a\0b", b"\xff\xfe\xc3", "\u4f60\u597d \U0001F980".encode(), b"<|im_end|>"]:
            code, out, err = self.run_program("generate", "-m", MODEL, *GREEDY, "-n", "4", stdin=prompt)
            self.assertIn(code, (0, 1), (prompt, err))
            if code == 1:
                self.assertTrue(err.startswith("intentkv: error: ") and err.count("\n") == 1, err)

    def test_prompt_longer_than_the_context_is_refused_with_the_figures(self):
        self.refused(1, "64", "generate", "-m", MODEL, "-c", "64", "-n", "4", stdin=b"word " * 500)

    def test_cap_too_small_is_refused(self):
        code, _, err = self.run_program("generate", "-m", MODEL, "--kv-memory", "4KiB", "-p", "x", "-n", "4")
        self.assertEqual(code, 1, err)
        self.assertTrue(err.startswith("intentkv: error: ") and err.count("\n") == 1, err)

    def test_piped_chat_replies_to_every_line_and_uses_the_cache(self):
        code, out, err = self.run_program("chat", "-m", MODEL, *GREEDY, "-n", "16", "-v",
                                          stdin=b"Hello!\n/stats\nWhat did I say?\n")
        self.assertEqual(code, 0, err)
        costs = [line for line in err.splitlines() if line.startswith("[prompt ")]
        self.assertEqual(len(costs), 2, err)
        self.assertIn("messages 2, replies 1", out)
        self.assertNotIn(" 0 cached", costs[1])

    def test_piped_chat_stops_at_a_wrong_command(self):
        code, _, err = self.run_program("chat", "-m", MODEL, *GREEDY, "-n", "4", stdin=b"/nonsense\nHi\n")
        self.assertEqual(code, 1)
        self.assertIn("unknown command /nonsense", err)

    def test_played_conversation_is_saved_with_the_replies(self):
        with tempfile.TemporaryDirectory() as folder:
            script, saved = pathlib.Path(folder) / "in.json", pathlib.Path(folder) / "out.json"
            script.write_text(json.dumps([
                {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."},
                {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye."}]))
            code, out, err = self.run_program("chat", "-m", MODEL, *GREEDY, "-n", "8", "--messages", script,
                                              "--save", saved)
            self.assertEqual(code, 0, err)
            roles = [m["role"] for m in json.loads(saved.read_text())["messages"]]
            self.assertEqual(roles, ["system", "user", "assistant", "user", "assistant"])
            self.assertIn("[assistant] Hello.", out)

    def test_terminal_ctrl_c_stops_the_reply_and_not_the_program(self):
        with tempfile.TemporaryDirectory() as home:
            chat = Terminal("chat", "-m", MODEL, *GREEDY, "--ignore-eos", home=home)
            chat.wait_for_prompt()
            chat.send("Tell me a very long story.\n")
            chat.wait_for("\n")
            time.sleep(1.0)
            chat.send("\x03")
            chat.wait_for("[stopped]")
            chat.wait_for_prompt()
            chat.send("\x03")  # at the prompt: a hint, not the end
            chat.wait_for("/quit leaves")
            chat.wait_for_prompt()
            chat.send("/stats\n")
            chat.wait_for("messages 2, replies 1")
            chat.wait_for_prompt()
            chat.send("/quit\n")
            self.assertEqual(chat.exit_code(), 0)
            history = pathlib.Path(home) / ".local/state/intentkv/chat_history"
            self.assertIn("long", history.read_text())

    def test_terminal_edits_lines_and_recalls_history(self):
        with tempfile.TemporaryDirectory() as home:
            chat = Terminal("chat", "-m", MODEL, *GREEDY, home=home)
            chat.wait_for_prompt()
            chat.send("/sttats\x1b[D\x1b[D\x1b[D\x1b[D\x7f\n")  # four left, delete a 't'
            chat.wait_for("messages 0, replies 0")
            chat.wait_for_prompt()
            chat.send("\x1b[A\n")  # up: the same command again
            chat.wait_for("messages 0, replies 0")
            chat.wait_for_prompt()
            chat.send("\x04")
            self.assertEqual(chat.exit_code(), 0)

    def test_bench_prints_one_row_per_test(self):
        code, out, err = self.run_program("bench", "-m", MODEL, "-p", "32", "-n", "4", "-d", "0,64", "-r",
                                          "2", "-t", "2", "--json", timeout=300)
        self.assertEqual(code, 0, err)
        rows = json.loads(out)
        self.assertEqual([row["test"] for row in rows], ["pp32@0", "tg4@0", "pp32@64", "tg4@64"])
        for row in rows:
            self.assertGreater(row["min"], 0)
            self.assertTrue(row["min"] <= row["tokens_per_second"] <= row["max"])
            self.assertEqual(row["settings"]["threads"], 2)
            self.assertGreater(row["roofline_fraction"], 0)


if __name__ == "__main__":
    program.main()
