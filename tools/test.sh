#!/usr/bin/env bash
# What `make test` and CI run. Every stage runs even if one before it failed; the release tests with
# lint come last, so that the test runner's summary closes the output. Usage: test.sh JOBS
set -uo pipefail
cd "$(dirname "$0")/.."

jobs=$1
fuzz_seconds=${IKV_FUZZ_SECONDS:-20}
failed=() times=()

# stage NAME COMMAND...: runs it, notes its time and whether it failed.
stage() {
  local name=$1 start=$SECONDS
  shift
  echo "==== $name: $*"
  if ! "$@"; then failed+=("$name"); fi
  times+=("$name $((SECONDS - start)) s")
}

require() {
  stage "$@"
  if [ "${#failed[@]}" -gt 0 ]; then
    echo "test: error: ${failed[*]} failed; nothing else can run" >&2
    exit 1
  fi
}

require setup tools/setup.sh
require build tools/build.sh release "$jobs"
require model build/release/intentkv model get smollm2
stage asan-ubsan tools/sanitize.sh asan-ubsan "$jobs"
stage tsan tools/sanitize.sh tsan "$jobs"
stage fuzz tools/fuzz.sh "$fuzz_seconds" "$jobs"
echo "==== stages before the release tests: $(IFS=,; echo "${times[*]}")"
if [ "${#failed[@]}" -gt 0 ]; then echo "test: FAILED so far: ${failed[*]}" >&2; fi

# One test at a time: many use every core, and timings of others would suffer.
ctest --test-dir build/release --output-on-failure --no-tests=error || failed+=(release-tests)
if [ "${#failed[@]}" -gt 0 ]; then
  echo "test: FAILED: ${failed[*]}" >&2
  exit 1
fi
