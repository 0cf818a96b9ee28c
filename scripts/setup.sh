#!/usr/bin/env bash
# Installs what a build needs beside Rust: a C compiler (SQLite, TLS). Does nothing when it is there.
set -euo pipefail

command -v cargo >/dev/null || { echo "Belfry needs Rust: see https://rustup.rs" >&2; exit 1; }
if ! command -v cc >/dev/null; then
    command -v apt-get >/dev/null || { echo "a C compiler (cc) is missing: install gcc or clang" >&2; exit 1; }
    as_root=(); [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" apt-get install -qy --no-install-recommends gcc libc6-dev
fi
