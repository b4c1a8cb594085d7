#!/usr/bin/env python3
"""Writes dequant_<TYPE>.bin: random blocks of each GGUF weight format and the floats they stand for.

The floats come from the `gguf` package (the format's own reference in Python), so they are an outside
oracle for src/quant. Layout, little-endian: uint32 num_blocks, uint32 block_bytes, uint32
block_elems, then num_blocks * block_bytes raw bytes, then num_blocks * block_elems float32.

Payload bytes are uniformly random (every code of a format occurs); the float16 scales inside a block
are redrawn as finite values, half of them small as in real models, a few zero, subnormal or large,
since a random bit pattern would be infinite or NaN once in 32.
"""

import argparse
import pathlib
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Byte offsets of the float16 scales inside one block.
SCALE_OFFSETS = {
    T.F32: (), T.F16: (), T.BF16: (),
    T.Q8_0: (0,), T.Q4_0: (0,), T.Q4_1: (0, 2), T.Q5_0: (0,), T.Q5_1: (0, 2),
    T.Q2_K: (80, 82), T.Q3_K: (108,), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,),
}
NUM_BLOCKS = 16
PLAIN_ELEMS = 512  # F32, F16 and BF16 have one element a block


def scales(rng: np.random.Generator, n: int) -> np.ndarray:
    """n finite float16 scales as raw bytes [n, 2]: mostly of a real model's size, some extreme."""
    v = (rng.standard_normal(n) * 0.01).astype(np.float16)
    pick = rng.integers(0, 10, n)
    v[pick == 0] = 0
    v[pick == 1] = np.float16(6e-8)  # smallest subnormal
    v[pick == 2] = np.float16(-1.5)
    v[pick == 3] = np.float16(120.0)
    return v.view(np.uint8).reshape(n, 2)


def random_blocks(kind: T, rng: np.random.Generator) -> np.ndarray:
    """Raw bytes [num_blocks, block_bytes] of `kind`."""
    _, block_bytes = GGML_QUANT_SIZES[kind]
    if kind in (T.F32, T.F16, T.BF16):
        x = (rng.standard_normal(PLAIN_ELEMS) * 10.0 ** rng.integers(-6, 4, PLAIN_ELEMS)).astype("<f4")
        x[:4] = [0.0, -0.0, 1.0, -65504.0]
        if kind == T.F16:
            return x.astype("<f2").view(np.uint8).reshape(PLAIN_ELEMS, 2)
        raw = x.view(np.uint8).reshape(PLAIN_ELEMS, 4)
        return raw if kind == T.F32 else np.ascontiguousarray(raw[:, 2:])
    blocks = rng.integers(0, 256, (NUM_BLOCKS, block_bytes), dtype=np.uint8)
    for offset in SCALE_OFFSETS[kind]:
        blocks[:, offset:offset + 2] = scales(rng, NUM_BLOCKS)
    return blocks


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    args = ap.parse_args()
    for kind in SCALE_OFFSETS:
        rng = np.random.default_rng(1000 + kind.value)
        blocks = random_blocks(kind, rng)
        elems, block_bytes = GGML_QUANT_SIZES[kind]
        floats = dequantize(blocks.reshape(1, -1), kind).astype("<f4").reshape(len(blocks), elems)
        assert np.isfinite(floats).all(), kind
        with open(args.out / f"dequant_{kind.name}.bin", "wb") as f:
            f.write(struct.pack("<III", len(blocks), block_bytes, elems))
            f.write(blocks.tobytes())
            f.write(floats.tobytes())
        print(f"{kind.name}: {len(blocks)} blocks of {block_bytes} bytes, {elems} elements each")


if __name__ == "__main__":
    main()
