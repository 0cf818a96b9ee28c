#!/usr/bin/env bash
# Throughput of the whole path, durable, with the provider on the same cores: scripts/bench.sh [RUNS] [DEMO ARGUMENTS]
# One line of JSON per run; every count is from the provider's journal.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
runs=${1:-3}
cargo build --release --locked -p belfry
for _ in $(seq "$runs"); do
    "$target/release/belfry" demo --no-kill --dead-tokens 0 --json "${@:2}"
done
