#!/usr/bin/env bash
# Formats our C++ files in place, or with --check only tells which differ (exit 1).
set -euo pipefail
cd "$(dirname "$0")/.."

formatter=clang-format-16
command -v $formatter >/dev/null || {
  echo "format: error: $formatter is not installed; run tools/setup.sh" >&2
  exit 1
}
mapfile -d '' -t files < <(git ls-files -z --cached --others --exclude-standard \
  -- '*.h' '*.cc' '*.cpp' '*.c' | sort -zu)
existing=()
for file in "${files[@]}"; do [ -f "$file" ] && existing+=("$file"); done
[ "${#existing[@]}" -gt 0 ] || { echo "format: error: no C++ files found" >&2; exit 1; }

if [ "${1:-}" = --check ]; then
  $formatter --dry-run -Werror "${existing[@]}" || {
    echo "format: some files differ from .clang-format: run \`make format\`" >&2
    exit 1
  }
else
  $formatter -i "${existing[@]}"
fi
echo "format: ${#existing[@]} files"
