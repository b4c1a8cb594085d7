#!/usr/bin/env bash
# Measures this machine and keeps the JSON under bench/results/. Usage: bench.sh INTENTKV [FLAGS...]
set -euo pipefail
cd "$(dirname "$0")/.."

intentkv=$1
shift
model=${IKV_BENCH_MODEL:-models/smollm2-135m-instruct-q4_1.gguf}
cpu=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1 | tr -cs 'A-Za-z0-9\n' '-')
threads=${IKV_BENCH_THREADS:-2}
results=bench/results/$(date -u +%F)-${cpu%-}-${threads}t.json

echo "== bench: $model, $threads threads"
mkdir -p bench/results
"$intentkv" bench -m "$model" -p 512 -n 64 -d 0,2048,7168 -t "$threads" -r 5 \
  --json-file "$results" "$@"
echo "== bench: JSON in $results"
