#!/bin/sh
# Kills `belfry relay`, with a store and without, at seeded moments over all pairs of systems, and restarts servers meanwhile:
# relay-kill-test.sh [SEEDS=20]; two seeds take about half an hour
set -eu
cd "$(dirname "$0")/.."
BELFRY_RELAY_SEEDS="${1:-20}" cargo test -p belfry --test relay kill
