#!/usr/bin/env bash
# Runs the tests again and again beside two busy loops, as on a machine that has other things to do:
# scripts/stress-test.sh [RUNS] [PACKAGE...]; ten runs of everything when nothing is said. Every run is told, every failure
# at the end again; fails when one did.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-10}
shift || true
# A busy loop ends by itself after so long, seconds: also if this script is killed. Each run has its own, so that all of it is
# under load; one that takes longer than its loops counts as failed.
load_max=3600
loops=2

# The interleavings are the same in every run, whatever the load: a part of them is enough (make race-test plays all).
export BELFRY_RACE_SCHEDULES=300
target=${CARGO_TARGET_DIR:-target}
cargo build --locked --workspace --all-targets

load=()
begin_load() {
    for ((loop = 0; loop < loops; loop++)); do
        timeout "$load_max" bash -c 'while :; do :; done' &
        load+=($!)
    done
}
# Says whether all loops were still running.
end_load() {
    local process ended=0
    for process in "${load[@]}"; do kill "$process" 2>/dev/null || ended=1; done
    [ ${#load[@]} -eq 0 ] || wait "${load[@]}" 2>/dev/null || true
    load=()
    return "$ended"
}
trap 'end_load || true' EXIT

said=$(mktemp -d)
failed=()
for ((run = 1; run <= runs; run++)); do
    began=$SECONDS
    begin_load
    result=passed
    "$target/debug/xtask" test "$@" >"$said/$run" 2>&1 || result=FAILED
    end_load || result="$result, and not all of it was under load"
    [ "$result" = passed ] || failed+=("$run")
    echo "run $run of $runs: $result after $((SECONDS - began)) s"
done
for run in "${failed[@]}"; do
    echo "run $run, in full in $said/$run:"
    grep -E "^test .* FAILED$|panicked at|^failed: " "$said/$run" || tail -5 "$said/$run"
done
[ ${#failed[@]} -eq 0 ] || exit 1
rm -r "$said"
