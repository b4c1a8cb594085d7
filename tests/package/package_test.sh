#!/usr/bin/env bash
# Installs the package into a temporary prefix, builds the example against it alone, runs it.
# Usage: package_test.sh SOURCE_DIR BUILD_DIR MODEL.gguf
set -euo pipefail
source_dir=$1
build_dir=$2
model=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build_dir" --prefix "$work/prefix" >"$work/install.log"
cmake -S "$source_dir/examples/chat_once" -B "$work/build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log"
cmake --build "$work/build" >"$work/build.log"
output=$("$work/build/chat_once" "$model" "Hello" "And now?")
echo "$output"
# The second turn must find the first in the cache.
grep -Eq '\[[0-9]+ prompt tokens, [1-9][0-9]* of them from the cache\]' <<<"$output"
