"""The `openai` package against `intentkv serve` on a real model: what its users do, unchanged.

Usage: openai_client_test.py INTENTKV
"""

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

import openai

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = pathlib.Path(os.environ.get("IKV_TEST_MODEL",
                                    ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf"))
PROGRAM = ""
KEY = "test-key"
GREEDY = {"temperature": 0, "max_tokens": 12}
TOOL = {"type": "function", "function": {
    "name": "read_file", "description": "Reads a file",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}},
                   "required": ["path"]}}}


def user(text):
    return {"role": "user", "content": text}


@unittest.skipUnless(MODEL.exists(), f"no model at {MODEL}; `make model` fetches it")
class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = subprocess.Popen(
            [PROGRAM, "serve", "-m", str(MODEL), "--port", "0", "--api-key", KEY, "--alias", "small",
             "--ctx-size", "2048", "--kv-memory", "256MiB"],
            stdout=subprocess.PIPE, text=True)
        line = cls.server.stdout.readline()
        cls.url = line.split(" at ")[1].split("/v1")[0]
        cls.client = openai.OpenAI(base_url=cls.url + "/v1", api_key=KEY, max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.send_signal(signal.SIGTERM)
        rest = cls.server.stdout.read()
        assert cls.server.wait(60) == 0, "the server must end cleanly on SIGTERM"
        assert "stopped" in rest, rest

    def chat(self, messages, **options):
        return self.client.chat.completions.create(
            model="small", messages=messages, **{**GREEDY, **options})

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["small"])

    def test_chat_streams_the_same_text(self):
        messages = [user("Name three colours.")]
        whole = self.chat(messages)
        self.assertTrue(whole.choices[0].message.content)
        stream = self.chat(messages, stream=True, stream_options={"include_usage": True})
        chunks = list(stream)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_a_resent_history_comes_from_the_cache(self):
        messages = [{"role": "system", "content": "You are brief. " * 20}, user("Hello")]
        first = self.chat(messages)
        messages += [{"role": "assistant", "content": first.choices[0].message.content},
                     user("And now?")]
        second = self.chat(messages)
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens,
                           first.usage.prompt_tokens - 2)
        self.assertEqual(second.usage.model_extra["intentkv"]["divergences"], [])

    def test_a_changed_history_is_reported(self):
        header = {"X-Session-ID": "diverging"}
        messages = [{"role": "system", "content": "Be brief."}, user("What is 1 + 1?")]
        self.chat(messages, extra_headers=header)
        messages[1] = user("What is 2 + 2?")
        changed = self.chat(messages, extra_headers=header)
        divergence = changed.usage.model_extra["intentkv"]["divergences"][0]
        self.assertEqual(divergence["message"], 1)
        self.assertEqual(divergence["what"], "content")

    def test_ten_tool_turns(self):
        messages = [{"role": "system", "content": "You read files."}, user("Read a to j.")]
        for turn in range(10):
            call = {"id": f"c{turn}", "type": "function",
                    "function": {"name": "read_file",
                                 "arguments": json.dumps({"path": chr(97 + turn)})}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{turn}",
                             "content": f"line {turn}\n" * 5})
            reply = self.chat(messages, tools=[TOOL], max_tokens=4)
            self.assertIn(reply.choices[0].finish_reason, ("length", "stop", "tool_calls"))
            if turn > 0:
                self.assertGreater(reply.usage.prompt_tokens_details.cached_tokens, 0)

    def test_stop_logprobs_and_choices(self):
        reply = self.chat([user("Count to five.")], n=2, logprobs=True, top_logprobs=3, seed=1,
                          temperature=0.7)
        self.assertEqual([c.index for c in reply.choices], [0, 1])
        entry = reply.choices[0].logprobs.content[0]
        self.assertEqual(len(entry.top_logprobs), 3)
        self.assertLessEqual(entry.logprob, 0)

    def test_same_seed_same_text(self):
        texts = {self.chat([user("Tell a story.")], temperature=1, seed=5)
                 .choices[0].message.content for _ in range(2)}
        self.assertEqual(len(texts), 1)

    def test_sixteen_at_once_equal_one_by_one(self):
        prompts = [f"What is {n} plus {n}?" for n in range(16)]
        alone = [self.chat([user(p)]).choices[0].message.content for p in prompts]

        async def at_once():
            async with openai.AsyncOpenAI(base_url=self.url + "/v1", api_key=KEY) as client:
                replies = await asyncio.gather(*(client.chat.completions.create(
                    model="small", messages=[user(p)], **GREEDY) for p in prompts))
            return [r.choices[0].message.content for r in replies]
        self.assertEqual(asyncio.run(at_once()), alone)

    def test_context_overflow_has_the_known_code(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat([user("word " * 4000)])
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_wrong_key_and_wrong_type(self):
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.url + "/v1", api_key="no", max_retries=0).models.list()
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat([user("x")], temperature="hot")
        self.assertEqual(caught.exception.param, "temperature")

    def test_completions(self):
        reply = self.client.completions.create(model="small", prompt="The sky is", **GREEDY)
        self.assertTrue(reply.choices[0].text)

    def test_responses_and_the_one_before(self):
        first = self.client.responses.create(model="small", input="My name is Ada.",
                                             instructions="Be brief.", temperature=0,
                                             max_output_tokens=12)
        self.assertTrue(first.output_text)
        second = self.client.responses.create(model="small", input="Who am I?", temperature=0,
                                              previous_response_id=first.id, max_output_tokens=12)
        self.assertGreater(second.usage.input_tokens, first.usage.input_tokens)
        events = [e.type for e in self.client.responses.create(
            model="small", input="Hello", temperature=0, max_output_tokens=5, stream=True)]
        self.assertEqual(events[0], "response.created")
        self.assertIn(events[-1], ("response.completed", "response.incomplete"))

    def test_messages_of_anthropic(self):
        body = {"model": "small", "max_tokens": 8, "system": "Be brief.",
                "messages": [user("Hello")], "temperature": 0}
        request = urllib.request.Request(self.url + "/v1/messages", json.dumps(body).encode(),
                                         {"x-api-key": KEY, "content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            message = json.load(answer)
        self.assertEqual(message["content"][0]["type"], "text")
        self.assertIn(message["stop_reason"], ("max_tokens", "end_turn"))

    def test_metrics_and_health(self):
        with urllib.request.urlopen(self.url + "/health", timeout=10) as answer:
            self.assertEqual(json.load(answer)["status"], "ok")
        request = urllib.request.Request(self.url + "/metrics",
                                         headers={"Authorization": "Bearer " + KEY})
        with urllib.request.urlopen(request, timeout=10) as answer:
            self.assertIn("intentkv_kv_cache_usage_perc", answer.read().decode())


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
