#!/usr/bin/env bash
# Plants each fault of crates/store/tests/planted in a copy of the last commit, and expects the interleavings to find it:
# scripts/race-faults.sh [SCHEDULES] [FAULT...]
set -euo pipefail
cd "$(dirname "$0")/.."

schedules=${1:-4000}
shift || true
faults=("$@")
[ ${#faults[@]} -gt 0 ] || faults=(crates/store/tests/planted/*.patch)
copy=$(mktemp -d)
trap 'git worktree remove --force "$copy"' EXIT
git worktree add --quiet --detach "$copy" HEAD
export BELFRY_RACE_SCHEDULES=$schedules
missed=0
for fault in "${faults[@]}"; do
    name=$(basename "$fault" .patch)
    git -C "$copy" checkout --quiet --force HEAD
    git -C "$copy" apply "$PWD/${fault#"$PWD/"}"
    # What does not compile is no finding.
    (cd "$copy" && cargo test --quiet --locked -p store --lib --no-run)
    if (cd "$copy" && cargo test --quiet --locked -p store --lib whatever_the_interleaving) >"$copy/found" 2>&1; then
        echo "$name: NOT FOUND in $schedules schedules"
        missed=1
    elif ! grep -q 'seed .*, after .* schedules' "$copy/found"; then
        tail -30 "$copy/found"
        exit 1
    else
        echo "$name: $(grep -m1 'seed .*, after .* schedules' "$copy/found")"
        grep -m1 '^=> ' "$copy/found"
    fi
done
exit $missed
