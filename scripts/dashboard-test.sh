#!/usr/bin/env bash
# Tests the dashboard as operators use it: types of its sources, that the committed files are those that the sources build, and an
# operator's tasks in a real Chromium, against real engines, a provider that fails, and PostgreSQL. What it did is kept as pictures in
# `dashboard` in the build folder. Chromium is that of the distribution, or the one that BELFRY_CHROMIUM names; one that cannot be had is an
# error, and never passed over.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/api-engine.sh

need node nodejs
BELFRY_CHROMIUM=${BELFRY_CHROMIUM:-$(command -v chromium || true)}
[ -x "$BELFRY_CHROMIUM" ] || { echo "$0 needs chromium: install it (make setup-servers does)" >&2; exit 1; }
[ -x "$tools/../debug/testbed" ] || { echo "testbed is not there: cargo build --locked -p testbed" >&2; exit 1; }
export BELFRY_CHROMIUM
export BELFRY_BINARIES=${BELFRY_BINARIES:-$(readlink -f "$tools/../debug")}
export BELFRY_PICTURES=${BELFRY_PICTURES:-$(readlink -f "$tools/..")/dashboard}

install_node_packages dashboard dashboard
# Beside its packages, where they are found.
rm -rf "$tools/dashboard/src" "$tools/dashboard/test"
cp -r dashboard/src dashboard/test dashboard/tsconfig.json dashboard/build.mjs "$tools/dashboard/"
(cd "$tools/dashboard" && node_modules/.bin/tsc --noEmit)

BELFRY_DASHBOARD_OUT=$work/built node "$tools/dashboard/build.mjs" >"$work/sizes" || { cat "$work/sizes" >&2; exit 1; }
for built in "$work"/built/*; do
    committed=crates/api/dashboard/$(basename "$built")
    # Versions of zlib compress differently: what comes out counts.
    if ! cmp -s <(case $built in *.gz) gzip -dc "$built" ;; *) cat "$built" ;; esac) \
        <(case $committed in *.gz) gzip -dc "$committed" ;; *) cat "$committed" ;; esac); then
        echo "$committed is not what dashboard/src builds: node dashboard/build.mjs" >&2
        exit 1
    fi
done

rm -rf "$BELFRY_PICTURES"
mkdir -p "$BELFRY_PICTURES"
node --test --test-concurrency=1 --test-reporter=spec "$tools"/dashboard/test/*.test.mjs
