#!/usr/bin/env bash
# Two producers and three consumers under random faults, on each combination of servers:
# scripts/cluster-kill-test.sh [ROUNDS] [SEED] [postgres|rabbitmq|nats|kafka]...
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
rounds=${1:-10}
seed=${2:-1}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- postgres rabbitmq nats kafka

scripts/setup-servers.sh
cargo build --release --locked -p belfry
for backing in "$@"; do
    cargo run --locked -q -p bench --example cluster_kill_test -- "$target/release/belfry" "$backing" "$seed" "$rounds"
done
