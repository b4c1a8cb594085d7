#!/usr/bin/env python3
"""Writes the first inputs of gguf_reader_fuzz to corpus/gguf_reader_fuzz: small valid files that reach
every metadata type and weight format, and a few broken ones. Written from ggml's docs/gguf.md, with
nothing of this project's own writer, so that reader and writer cannot agree on a mistake."""

import pathlib
import struct

TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
         "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84),
         "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
         "Q6_K": (14, 256, 210), "BF16": (30, 1, 2)}
STRING, ARRAY = 8, 9


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key.encode()) + struct.pack("<I", kind) + value


def array(kind: int, count: int, values: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + values


def gguf(entries: list[bytes], tensors: list[tuple[str, int, list[int], int, int]] = (),
         version: int = 3, alignment: int = 32) -> bytes:
    """`tensors`: name, type number, dims, offset, bytes."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries)
    end = 0
    for name, kind, dims, offset, size in tensors:
        head += text(name.encode()) + struct.pack("<I", len(dims))
        head += b"".join(struct.pack("<Q", dim) for dim in dims) + struct.pack("<IQ", kind, offset)
        end = max(end, offset + size)
    head += b"\0" * (-len(head) % alignment)
    return head + bytes(i * 37 % 251 for i in range(end))


def main() -> None:
    scalars = [entry("u8", 0, b"\x07"), entry("i8", 1, b"\xff"), entry("u16", 2, b"\1\2"),
               entry("i16", 3, b"\1\xff"), entry("u32", 4, b"\1\2\3\4"), entry("i32", 5, b"\1\2\3\xff"),
               entry("f32", 6, struct.pack("<f", 1.5)), entry("bool", 7, b"\1"),
               entry("string", STRING, text(b"llama")), entry("u64", 10, b"\1" * 8),
               entry("i64", 11, b"\xff" * 8), entry("f64", 12, struct.pack("<d", -2.5))]
    arrays = [entry(f"a{kind}", ARRAY, array(kind, 2, b"\1" * (2 * size)))
              for kind, size in ((0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1),
                                 (10, 8), (11, 8), (12, 8))]
    arrays.append(entry("texts", ARRAY, array(STRING, 3, text(b"a") + text(b"") + text(b"bcd"))))
    tensors, offset = [], 0
    for name, (kind, elements, size) in TYPES.items():
        num_bytes = 512 // elements * size
        tensors.append((name, kind, [256, 2], offset, num_bytes))
        offset += -(-num_bytes // 32) * 32
    one = [("w", 8, [32, 2], 0, 68)]
    files = {
        "empty_v2": gguf([], version=2), "empty_v3": gguf([]), "scalars": gguf(scalars),
        "arrays": gguf(arrays), "one_tensor": gguf([entry("general.architecture", STRING, text(b"llama"))], one),
        "alignment_8": gguf([entry("general.alignment", 4, struct.pack("<I", 8))],
                            [("a", 0, [2], 0, 8), ("b", 0, [2], 8, 8)], alignment=8),
        "all_weight_types": gguf([], tensors),
        "four_dims": gguf([], [("w", 0, [2, 3, 1, 2], 0, 48)]),
        "overlap": gguf([], [("a", 0, [16], 0, 64), ("b", 0, [16], 32, 64)]),
        "huge_counts": b"GGUF" + struct.pack("<IQQ", 3, 1 << 63, 1 << 63),
        "huge_array": gguf([entry("a", ARRAY, array(10, (1 << 61) + 1, b""))]),
        "wrapping_dims": gguf([], [("w", 0, [1 << 32, 1 << 32], 0, 64)]),
        "nested_array": gguf([entry("a", ARRAY, array(ARRAY, 1, array(0, 1, b"\1")))]),
        "cut": gguf([], one)[:-1],
        "version_1": gguf([], version=1), "big_endian": gguf([], version=3 << 24),
    }
    folder = pathlib.Path(__file__).parent / "corpus" / "gguf_reader_fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    print(f"{len(files)} files in {folder.name}")


if __name__ == "__main__":
    main()
