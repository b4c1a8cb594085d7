#!/usr/bin/env bash
# Brings a machine to where IntentKV builds and its tests run: Debian packages, a Rust toolchain that
# is new enough, and the Python environment .venv. Safe to run again; quick when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# Prints the listed Debian packages that are not installed.
missing_packages() {
  local name
  sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' tools/debian-packages.txt | while read -r name; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || echo "$name"
  done
}

# apt-get with what an unattended run needs; sudo only where we are not root.
apt() {
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "not root and no sudo; as root run: apt-get install $*"
    as_root=(sudo)
  fi
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get \
    -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -qq "$@" </dev/null
}

install_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: install by hand what tools/debian-packages.txt lists"
    return
  fi
  mapfile -t missing < <(missing_packages)
  if [ "${#missing[@]}" = 0 ]; then
    say "Debian packages: all installed"
    return
  fi
  say "Debian packages: installing ${missing[*]}"
  apt update || die "apt-get update failed: check the package sources and the network, then run again"
  apt install -y --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get install failed for: ${missing[*]}"
  mapfile -t missing < <(missing_packages)
  [ "${#missing[@]}" = 0 ] || die "still missing after apt-get install: ${missing[*]}"
}

# True when dotted version $1 is at least $2.
version_at_least() {
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

check_tool() {  # check_tool NAME MINIMUM WHAT-TO-DO
  local name=$1 minimum=$2 advice=$3 found
  command -v "$name" >/dev/null || die "$name is not installed; $advice"
  found=$("$name" --version 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1)
  [ -n "$found" ] || die "$name --version prints no version; $advice"
  version_at_least "$found" "$minimum" || die "$name is $found, at least $minimum is needed; $advice"
  say "$name $found (needs $minimum)"
}

check_rust() {
  local needed advice
  needed=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' rust/text/Cargo.toml)
  [ -n "$needed" ] || die "rust/text/Cargo.toml states no rust-version"
  advice="install Rust $needed or newer with rustup (see rustup.rs): \`rustup update stable\`; Debian 12's own rustc is too old"
  check_tool rustc "$needed" "$advice"
  check_tool cargo "$needed" "$advice"
}

# .venv holds exactly what python/requirements.lock pins; a stamp tells when that was last true.
make_venv() {
  local lock=python/requirements.lock stamp=.venv/.requirements.lock
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
    die "python3 3.9 or newer is needed; install Debian's python3"
  if cmp -s "$lock" "$stamp" && .venv/bin/python -c '' 2>/dev/null; then
    say "Python environment .venv: up to date"
    return
  fi
  say "Python environment .venv: installing $lock"
  python3 -m venv --clear .venv || die "python3 -m venv failed; install Debian's python3-venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    --requirement "$lock" || die "pip could not install $lock"
  cp "$lock" "$stamp"
}

install_packages
check_tool cmake 3.25 "install Debian 12's cmake or newer"
check_tool g++ 12 "install Debian 12's g++ or newer"
check_rust
make_venv
say "ready"
