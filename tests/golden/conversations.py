"""Token ids of the shared conversations, for the goldens and for evaluation.

The conversations are for measuring only and stay outside the repository: goldens name a message
range by (file, id, first, last) and hold the SHA-256 of its ids, never the text or the ids.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib

import numpy as np
from gguf import GGUFReader
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

REPO = pathlib.Path(__file__).resolve().parents[2]


def data_dir() -> pathlib.Path:
    return pathlib.Path(os.environ.get("IKV_DATA_DIR", REPO.parent / "shared" / "data"))


def model_path() -> pathlib.Path:
    default = REPO / "models" / "smollm2-135m-instruct-q4_1.gguf"
    return pathlib.Path(os.environ.get("IKV_TEST_MODEL", default))


def load(file: str) -> dict[str, dict]:
    """Conversations of one .jsonl file by id."""
    with open(data_dir() / file, encoding="utf-8") as f:
        return {c["id"]: c for c in map(json.loads, f)}


def hermes(messages: list[dict]) -> list[dict]:
    """Tool calls and results as text, for templates that know none: calls follow the content in
    <tool_call> tags, results in a row make one user message of <tool_response> tags."""
    plain: list[dict] = []
    previous = None
    for m in messages:
        content = m.get("content") or ""
        if m["role"] == "tool":
            text = f"<tool_response>\n{content}\n</tool_response>"
            if previous == "tool":
                plain[-1]["content"] += "\n" + text
            else:
                plain.append({"role": "user", "content": text})
        else:
            parts = [content] if content else []
            for call in m.get("tool_calls") or []:
                arguments = call["arguments"]
                if isinstance(arguments, str):
                    arguments = json.loads(arguments)
                body = json.dumps({"name": call["name"], "arguments": arguments}, ensure_ascii=False)
                parts.append(f"<tool_call>\n{body}\n</tool_call>")
            plain.append({"role": m["role"], "content": "\n".join(parts)})
        previous = m["role"]
    return plain


class ModelText:
    """Tokenizer and chat template of a GGUF file with a byte-level BPE vocabulary."""

    def __init__(self, path: str | os.PathLike):
        fields = GGUFReader(path).fields
        pre = fields["tokenizer.ggml.pre"].contents()
        if pre != "smollm":
            raise ValueError(f"pre-tokenizer '{pre}': the goldens are made with SmolLM2 ('smollm')")
        words = fields["tokenizer.ggml.tokens"].contents()
        merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
        kinds = fields["tokenizer.ggml.token_type"].contents()
        self.tokenizer = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, merges))
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ])
        self.tokenizer.decoder = decoders.ByteLevel()
        control = [w for w, kind in zip(words, kinds) if kind == 3]
        self.tokenizer.add_special_tokens([AddedToken(w, special=True, normalized=False) for w in control])
        env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self.template = env.from_string(fields["tokenizer.chat_template"].contents())

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def render(self, messages: list[dict], add_generation_prompt: bool = False) -> str:
        """The file's own template over plain messages; tools in the engine's text form (hermes())."""
        return self.template.render(messages=hermes(messages),
                                    add_generation_prompt=add_generation_prompt)

    def conversation_ids(self, file: str, id: str, first: int, last: int) -> list[int]:
        """Ids of messages first..last (inclusive) of one shared conversation."""
        messages = load(file)[id]["messages"]
        return self.ids(self.render(messages[first:last + 1]))


def ids_digest(ids: list[int]) -> str:
    """SHA-256 of the ids as little-endian uint32."""
    return hashlib.sha256(np.asarray(ids, "<u4").tobytes()).hexdigest()
