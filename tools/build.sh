#!/usr/bin/env bash
# Configures and builds one CMake preset. Usage: build.sh PRESET JOBS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1 jobs=$2
shift 2
targets=("${@:-all}")

echo "== build: preset $preset, $jobs jobs, targets: ${targets[*]}"
options=()
command -v ccache >/dev/null && options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
mkdir -p build
if ! cmake --preset "$preset" ${options[@]+"${options[@]}"} >"build/$preset.configure.log" 2>&1; then
  cat "build/$preset.configure.log"
  echo "build: error: cmake --preset $preset failed (output above)" >&2
  exit 1
fi
cmake --build "build/$preset" --parallel "$jobs" --target "${targets[@]}"
