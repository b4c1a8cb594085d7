#!/usr/bin/env bash
# A recorded agent's session on real weights, on the full cache and on IntentKV, side by side.
# Usage: demo.sh INTENTKV
set -euo pipefail
cd "$(dirname "$0")/.."

intentkv=$1
model=${IKV_DEMO_MODEL:-models/smollm2-135m-instruct-q4_1.gguf}

if ! "$intentkv" --help | grep -q '^  demo '; then
  echo "demo: error: $intentkv was built without demo: src/engine is not complete in this version" >&2
  exit 1
fi
cat <<'TEXT'
== demo: a flight is asked for, other matters with long tool outputs come between, and the last
question goes back to the start. The session stands in demo/trip.json. The default model is small:
at this depth its own answer is often wrong. What is shown is how close the two caches are.
TEXT
"$intentkv" demo --model "$model" --messages demo/trip.json
echo "== demo: done. Talk yourself: $intentkv chat -m $model --kv-policy intent"
