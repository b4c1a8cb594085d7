#!/usr/bin/env bash
# A real conversation on real weights: an agent's session with long tool outputs, played turn by turn.
# Usage: demo.sh INTENTKV
set -euo pipefail
cd "$(dirname "$0")/.."

intentkv=$1
model=${IKV_DEMO_MODEL:-models/smollm2-135m-instruct-q4_1.gguf}

if ! "$intentkv" --help | grep -q '^  chat '; then
  echo "demo: error: $intentkv was built without chat: src/engine is not complete in this version" >&2
  exit 1
fi
cat <<'TEXT'
== demo: a trip is planned, other matters come between, and the last question goes back to the start.
The tool calls and tool results stand in demo/trip.json; the replies are the model's own, greedy.
After each reply: what its prompt cost. Only what is new is evaluated; the rest is in the cache.
TEXT
"$intentkv" chat --model "$model" --messages demo/trip.json --temp 0 --n-predict 80 --verbose 2>&1
echo "== demo: done. Talk yourself: $intentkv chat -m $model"
