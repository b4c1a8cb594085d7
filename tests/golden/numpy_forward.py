"""An independent NumPy forward of Llama-architecture GGUF models: the oracle of the engine's logits.

Written from the papers, not from any engine: RMSNorm (Zhang & Sennrich 2019, eq. 4), rotary embedding
(Su et al. 2021, eq. 34) with the linear, YaRN (Peng et al. 2023, section 3) and per-frequency
(`rope_freqs.weight`, Llama 3.1) scalings, grouped-query attention (Ainslie et al. 2023) and SwiGLU
(Shazeer 2020, eq. 6). Weights are read and dequantised to float32 by the `gguf` package. Everything
is float32 except where a comment says otherwise; whole sequences run at once, so that 2,000 tokens
take seconds.
"""

from __future__ import annotations

import math
from typing import Callable, Iterator

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

# Called before every matrix product with the product's name (as the tensor's, without the layer's
# prefix), its layer and its input rows; returns the rows to use. Lets experiments quantise them.
ActivationHook = Callable[[str, int, np.ndarray], np.ndarray]

QUERY_CHUNK = 256  # queries scored at once: bounds the score matrix at 256 x n x heads floats


class Config:
    """Hyper-parameters of one file, by their GGUF keys."""

    def __init__(self, reader: GGUFReader):
        self.reader = reader
        self.arch = self.get("general.architecture")
        if self.arch != "llama":
            raise ValueError(f"architecture '{self.arch}': this forward knows only 'llama'")
        self.num_layers = int(self.hyper("block_count"))
        self.dim = int(self.hyper("embedding_length"))
        self.num_heads = int(self.hyper("attention.head_count"))
        self.num_kv_heads = int(self.hyper("attention.head_count_kv", self.num_heads))
        self.head_dim = int(self.hyper("attention.key_length", self.dim // self.num_heads))
        self.rope_dim = int(self.hyper("rope.dimension_count", self.head_dim))
        self.rope_base = float(self.hyper("rope.freq_base", 10000.0))
        self.eps = float(self.hyper("attention.layer_norm_rms_epsilon"))
        self.context = int(self.hyper("context_length"))

    def get(self, key: str, default=None):
        field = self.reader.fields.get(key)
        if field is None:
            return default
        return field.contents()

    def hyper(self, name: str, default=None):
        value = self.get(f"{self.arch}.{name}", default)
        if value is None:
            raise ValueError(f"{self.arch}.{name} is missing")
        return value


def rope_frequencies(cfg: Config, factors: np.ndarray | None) -> tuple[np.ndarray, float]:
    """Angular frequency of each pair [rope_dim / 2] in float64, and the factor on cos and sin."""
    i = np.arange(0, cfg.rope_dim, 2, dtype=np.float64)
    freqs = cfg.rope_base ** (-i / cfg.rope_dim)
    if factors is not None:
        freqs = freqs / factors.astype(np.float64)
    kind = cfg.hyper("rope.scaling.type", "none")
    if kind == "none":
        return freqs, 1.0
    scale = float(cfg.hyper("rope.scaling.factor", 1.0))
    if kind == "linear":
        return freqs / scale, 1.0
    if kind != "yarn":
        raise ValueError(f"rope.scaling.type '{kind}': this forward knows none, linear and yarn")
    original = float(cfg.hyper("rope.scaling.original_context_length", cfg.context))
    # YaRN: a pair keeps its frequency if it turns more than beta_fast times over the original
    # context, is interpolated if fewer than beta_slow times, and is blended in between.
    beta_fast = float(cfg.hyper("rope.scaling.yarn_beta_fast", 32.0))
    beta_slow = float(cfg.hyper("rope.scaling.yarn_beta_slow", 1.0))

    def dim_of(turns: float) -> float:
        return cfg.rope_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(cfg.rope_base))

    low = max(0.0, math.floor(dim_of(beta_fast)))
    high = min(cfg.rope_dim - 1.0, math.ceil(dim_of(beta_slow)))
    ramp = np.clip((i / 2 - low) / max(0.001, high - low), 0.0, 1.0)
    return freqs * (1 - ramp) + freqs / scale * ramp, 0.1 * math.log(scale) + 1.0


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    # The mean of squares in float64: the oracle's own rounding should not be what is measured.
    mean_square = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
    return (x * (1.0 / np.sqrt(mean_square + eps)).astype(np.float32)) * weight


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x [n, heads, head_dim], cos and sin [n, rope_dim / 2]. Llama files pair channels 2i, 2i+1."""
    width = 2 * cos.shape[-1]
    a, b = x[..., 0:width:2], x[..., 1:width:2]
    out = x.copy()
    out[..., 0:width:2] = a * cos[:, None] - b * sin[:, None]
    out[..., 1:width:2] = a * sin[:, None] + b * cos[:, None]
    return out


def silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp(-x) = inf for very negative x gives the right limit, -0
        return x / (1.0 + np.exp(-x))


class Model:
    """A Llama GGUF file with all weights as float32 in memory (4 bytes a parameter)."""

    def __init__(self, path: str):
        reader = GGUFReader(path)
        self.cfg = Config(reader)
        self.weights: dict[str, np.ndarray] = {}
        for tensor in reader.tensors:
            flat = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            # GGUF lists the contiguous dimension first; rows are outputs.
            self.weights[tensor.name] = flat.reshape([int(d) for d in reversed(tensor.shape)])
        self.freqs, self.rope_gain = rope_frequencies(self.cfg, self.weights.get("rope_freqs.weight"))
        self.vocab_size = self.weights["token_embd.weight"].shape[0]

    def linear(self, x: np.ndarray, name: str, layer: int, hook: ActivationHook | None) -> np.ndarray:
        prefix = f"blk.{layer}.{name}" if layer >= 0 else name
        y = (x if hook is None else hook(name, layer, x)) @ self.weights[f"{prefix}.weight"].T
        bias = self.weights.get(f"{prefix}.bias")
        return y if bias is None else y + bias

    def attention(self, h: np.ndarray, layer: int, cos, sin, hook) -> np.ndarray:
        cfg, n = self.cfg, h.shape[0]
        group = cfg.num_heads // cfg.num_kv_heads
        q = self.linear(h, "attn_q", layer, hook).reshape(n, cfg.num_heads, cfg.head_dim)
        k = self.linear(h, "attn_k", layer, hook).reshape(n, cfg.num_kv_heads, cfg.head_dim)
        v = self.linear(h, "attn_v", layer, hook).reshape(n, cfg.num_kv_heads, cfg.head_dim)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = k.transpose(1, 2, 0), v.transpose(1, 0, 2)  # [kv, d, n], [kv, n, d]
        out = np.empty((n, cfg.num_heads, cfg.head_dim), np.float32)
        for begin in range(0, n, QUERY_CHUNK):
            end = min(n, begin + QUERY_CHUNK)
            m = end - begin
            # All queries of one KV head's group in one product: [kv, group * m, d].
            rows = q[begin:end].reshape(m, cfg.num_kv_heads, group, cfg.head_dim)
            rows = rows.transpose(1, 2, 0, 3).reshape(cfg.num_kv_heads, group * m, cfg.head_dim)
            scores = (rows @ k[:, :, :end]) * np.float32(1.0 / math.sqrt(cfg.head_dim))
            scores = scores.reshape(cfg.num_kv_heads, group, m, end)
            future = np.arange(end)[None, :] > np.arange(begin, end)[:, None]
            scores[:, :, future] = -np.inf
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            mixed = scores.reshape(cfg.num_kv_heads, group * m, end) @ v[:, :end]
            mixed = mixed.reshape(cfg.num_kv_heads, group, m, cfg.head_dim).transpose(2, 0, 1, 3)
            out[begin:end] = mixed.reshape(m, cfg.num_heads, cfg.head_dim)
        return self.linear(out.reshape(n, -1), "attn_output", layer, hook)

    def hidden(self, ids, hook: ActivationHook | None = None) -> np.ndarray:
        """Final normed hidden rows [n, dim] of one whole sequence."""
        ids = np.asarray(ids, dtype=np.int64)
        if ids.ndim != 1 or ids.size == 0 or ids.min() < 0 or ids.max() >= self.vocab_size:
            raise ValueError(f"token ids must be a flat, non-empty list within 0..{self.vocab_size - 1}")
        w, cfg = self.weights, self.cfg
        angles = np.arange(len(ids), dtype=np.float64)[:, None] * self.freqs[None, :]
        cos = (np.cos(angles) * self.rope_gain).astype(np.float32)
        sin = (np.sin(angles) * self.rope_gain).astype(np.float32)
        x = w["token_embd.weight"][ids]
        for layer in range(cfg.num_layers):
            h = rms_norm(x, w[f"blk.{layer}.attn_norm.weight"], cfg.eps)
            x = x + self.attention(h, layer, cos, sin, hook)
            h = rms_norm(x, w[f"blk.{layer}.ffn_norm.weight"], cfg.eps)
            gate = silu(self.linear(h, "ffn_gate", layer, hook))
            up = self.linear(h, "ffn_up", layer, hook)
            x = x + self.linear(gate * up, "ffn_down", layer, hook)
        return rms_norm(x, w["output_norm.weight"], cfg.eps)

    def head(self, hidden: np.ndarray, hook: ActivationHook | None = None) -> np.ndarray:
        """Logits [rows, vocab] of normed hidden rows; tied to the embedding when there is no output."""
        if "output.weight" in self.weights:
            return self.linear(hidden, "output", -1, hook)
        rows = hidden if hook is None else hook("output", -1, hidden)
        return rows @ self.weights["token_embd.weight"].T

    def logits(self, ids, chunk: int = 256) -> Iterator[np.ndarray]:
        """Logits of one sequence in chunks of rows (a whole one is 200 kB a token at 49k words)."""
        hidden = self.hidden(ids)
        for begin in range(0, len(hidden), chunk):
            yield self.head(hidden[begin:begin + chunk])


def log_softmax(logits: np.ndarray) -> np.ndarray:
    z = logits - logits.max(axis=-1, keepdims=True)
    # Sum in float64: 49k float32 terms would lose a digit.
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True, dtype=np.float64)).astype(np.float32)


def kl_divergence(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """KL(reference || other) in nats for each row of logits."""
    p, q = log_softmax(reference), log_softmax(other)
    return np.sum(np.exp(p) * (p - q), axis=-1, dtype=np.float64)
