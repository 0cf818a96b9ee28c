#!/usr/bin/env bash
# Rounds of kill -9 at random moments: scripts/kill-test.sh [ROUNDS] [SEED]
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked -p belfry
cargo run --locked -q -p bench --example kill_test -- "$target/release/belfry" "${1:-50}" "${2:-1}"
