#!/bin/sh
# Kills `belfry relay` at seeded moments over all pairs of systems: relay-kill-test.sh [SEEDS=20]
set -eu
cd "$(dirname "$0")/.."
BELFRY_RELAY_SEEDS="${1:-20}" cargo test -p belfry --test relay kill
