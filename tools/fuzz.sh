#!/usr/bin/env bash
# Builds the libFuzzer targets with clang under ASan and UBSan, replays the kept inputs and then
# searches for new ones for a while. Usage: fuzz.sh SECONDS JOBS
# Inputs: fuzz/corpus/NAME (kept, committed), build/fuzz/found/NAME (grown by runs on this machine).
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=$1 jobs=$2
[ -f fuzz/CMakeLists.txt ] || { echo "fuzz: error: no fuzz/CMakeLists.txt" >&2; exit 1; }
tools/build.sh fuzz "$jobs" fuzz/all

status=0 number=0
for binary in build/fuzz/fuzz/*_fuzz; do
  [ -x "$binary" ] || continue
  number=$((number + 1))
  name=$(basename "$binary")
  found=build/fuzz/found/$name
  mkdir -p "$found"
  corpus=("$found")
  [ -d "fuzz/corpus/$name" ] && corpus+=("fuzz/corpus/$name")
  echo "== fuzz: $name, $seconds s"
  if "$binary" "${corpus[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3000 \
    -print_final_stats=1 -verbosity=1 -artifact_prefix="$found/" >"build/fuzz/$name.log" 2>&1; then
    grep -E '^stat::(number_of_executed_units|average_exec_per_sec|new_units_added)|DONE' \
      "build/fuzz/$name.log" || true
  else
    tail -n 60 "build/fuzz/$name.log"
    echo "fuzz: error: $name failed; the input lies in $found; keep it in fuzz/corpus/$name" >&2
    status=1
  fi
done
[ "$number" -gt 0 ] || { echo "fuzz: error: no fuzz target was built" >&2; exit 1; }
exit $status
