#!/usr/bin/env python3
"""Writes greedy_llamacpp.json: llama.cpp's greedy continuations of short prompts written for this test.

    .venv/bin/python tests/golden/make_greedy_goldens.py --llama-source DIR --llama-lib DIR

DIR: llama.cpp's source (for its headers) and the folder of its built libllama.so.

Two runs are kept. `q4_1` is llama.cpp on the file as it is: its kernels round activations to 8 bits
(mean KL about 2e-3 against unrounded ones), which flips near-ties that no other engine can be asked
to flip alike. `f32` is llama.cpp on a file with the same weights, dequantised to float32: what the
weights say, with no rounding of anybody's choice in it. The test's bound is on `f32`; it prints the
agreement with both.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import tempfile

import gguf
import numpy as np
from gguf.quants import dequantize

import conversations

HERE = pathlib.Path(__file__).parent
NUM_TOKENS = 64
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived a clockmaker who",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "#include <stdio.h>\n\nint main(void) {\n",
    "Shopping list:\n- milk\n- bread\n-",
    "Q: What is 17 + 25?\nA:",
    "The derivative of x^3 with respect to x is",
    "从前有一座山,山上有",
    "The three states of matter are",
    "SELECT name, price FROM products WHERE",
    "Dear Ms. Okafor,\n\nThank you for your letter of 3 March.",
    "{\"name\": \"Ada\", \"age\": 36, \"languages\": [",
    "To boil an egg, first",
    "Water freezes at 0 degrees Celsius and boils at",
    "In 1969, astronauts landed on",
    "<|im_start|>user\nName a colour of the rainbow.<|im_end|>\n<|im_start|>assistant\n",
    "import numpy as np\n\n# Mean of each column\n",
    "La casa de mi abuela está",
    "The opposite of hot is cold. The opposite of tall is",
    "Monday, Tuesday, Wednesday,",
]


def build(source: pathlib.Path, lib: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    program = folder / "llama_greedy"
    subprocess.run(["g++", "-std=c++17", "-O1", HERE / "llama_greedy.cc", "-o", program,
                    f"-I{source}/include", f"-I{source}/ggml/include", f"-L{lib}", "-lllama", "-lggml",
                    "-lggml-base", f"-Wl,-rpath,{lib}"], check=True)
    return program


def write_f32(path: pathlib.Path, out: pathlib.Path) -> None:
    """The same file with every tensor as float32 of the same value."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values.reshape([int(d) for d in reversed(tensor.shape)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def continuations(program: pathlib.Path, model: pathlib.Path) -> list[list[list[int]]]:
    """[prompt's ids, ids that follow] of each prompt."""
    done = subprocess.run([program, model, str(NUM_TOKENS), "2"], check=True, capture_output=True,
                          input="\0".join(PROMPTS).encode())
    lines = [[int(word) for word in line.split()] for line in done.stdout.decode().splitlines()]
    assert len(lines) == 2 * len(PROMPTS), done.stderr
    return [lines[i:i + 2] for i in range(0, len(lines), 2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--llama-source", type=pathlib.Path, required=True)
    parser.add_argument("--llama-lib", type=pathlib.Path, required=True)
    args = parser.parse_args()
    path = conversations.model_path()
    text = conversations.ModelText(path)
    with tempfile.TemporaryDirectory() as folder:
        program = build(args.llama_source, args.llama_lib.resolve(), pathlib.Path(folder))
        f32_path = pathlib.Path(folder) / "f32.gguf"
        write_f32(path, f32_path)
        q4_1, f32 = continuations(program, path), continuations(program, f32_path)
    cases = []
    for prompt, (prompt_ids, exact), (_, rounded) in zip(PROMPTS, f32, q4_1):
        cases.append({"prompt": prompt, "prompt_ids": prompt_ids, "f32": exact, "q4_1": rounded,
                      "text": text.decode(exact)})
        print(repr(prompt), "->", repr(text.decode(exact)))
    same = sum(case["f32"] == case["q4_1"] for case in cases)
    print(f"llama.cpp agrees with itself (f32 and q4_1) on {same} of {len(cases)}")
    golden = {"model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "cases": cases}
    lines = json.dumps(golden, ensure_ascii=False, separators=(",", ":")).replace('{"prompt"', '\n{"prompt"')
    (HERE / "greedy_llamacpp.json").write_text(lines + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
