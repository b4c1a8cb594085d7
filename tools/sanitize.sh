#!/usr/bin/env bash
# Builds the layers that a sanitizer is for and runs their tests, without those labelled slow, perf
# or lint. Usage: sanitize.sh asan-ubsan|tsan JOBS
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1 jobs=$2
case "$preset" in
  # Layers that read foreign bytes, hand out memory, or compute over it.
  asan-ubsan) layers=(base core gguf quant ops attention kv text session sampling pruning model engine) ;;
  # Layers with threads.
  tsan) layers=(base ops kv engine) ;;
  *) echo "sanitize: error: unknown preset '$preset' (asan-ubsan, tsan)" >&2; exit 2 ;;
esac
targets=()
for layer in "${layers[@]}"; do
  [ -f "src/$layer/CMakeLists.txt" ] && targets+=("src/$layer/all")
done
targets+=(tests/engine/all)  # the whole engine, from the outside
tools/build.sh "$preset" "$jobs" "${targets[@]}"

export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1
failed=()
for target in "${targets[@]}"; do
  echo "== $preset: ${target%/all}"
  ctest --test-dir "build/$preset/${target%/all}" --output-on-failure --parallel "$jobs" \
    --label-exclude '^(slow|perf|lint)$' --no-tests=ignore || failed+=("${target%/all}")
done
if [ "${#failed[@]}" -gt 0 ]; then
  echo "sanitize: error: $preset found faults in: ${failed[*]}" >&2
  exit 1
fi
