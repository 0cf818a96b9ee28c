#!/usr/bin/env bash
# Holds the API and its description (docs/reference/openapi.json) against programs of others: Spectral judges the description, and
# schemathesis sends an engine what the description allows and what it forbids. It fails at an answer that is not described, at a 5xx,
# and at a request that is forbidden and was accepted. What it draws is the same in each run.
#   scripts/api-judges.sh [EXAMPLES]      25 for each operation when nothing is said; more find more
# Both are installed into `tools` in the build folder, in the versions of tests/api; ones that are there are used again. The engine is
# that of a development build. A tool that cannot be had is an error, and never passed over.
set -euo pipefail
cd "$(dirname "$0")/.."

examples=${1:-25}
target=${CARGO_TARGET_DIR:-$(cargo metadata --no-deps --offline --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)}
mkdir -p "$target/tools"
# A Python environment has its own place written into it.
tools=$(readlink -f "$target/tools")
binary=$target/debug/belfry

need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null || { echo "the judges of the API need $1: install $2 (make setup-servers does)" >&2; exit 1; }
}

# Made anew when FILE is not the one that it was made from; that is kept when it is whole.
is_there() { # FOLDER FILE
    cmp -s "$tools/$1/made-from" "$2"
}

install_spectral() {
    local lock=tests/api/package-lock.json
    is_there spectral "$lock" && return
    need npm npm
    echo "installing Spectral into $tools (nothing else is changed)"
    rm -rf "$tools/spectral"
    mkdir "$tools/spectral"
    cp tests/api/package.json "$lock" "$tools/spectral/"
    npm ci --prefix "$tools/spectral" --ignore-scripts --no-audit --no-fund --silent
    cp "$lock" "$tools/spectral/made-from"
}

install_schemathesis() {
    local versions=tests/api/requirements.txt
    is_there schemathesis "$versions" && return
    need /usr/bin/python3 python3-venv
    echo "installing schemathesis into $tools (nothing else is changed)"
    rm -rf "$tools/schemathesis"
    /usr/bin/python3 -m venv "$tools/schemathesis"
    "$tools/schemathesis/bin/pip" install -q --disable-pip-version-check --no-deps -r "$versions"
    cp "$versions" "$tools/schemathesis/made-from"
}

# An engine with an empty store, a channel that sends nothing, and a key for everything. Sets `address` and `key`.
start_engine() {
    "$binary" api-key judge --tenant default --scopes send,read,cancel,suppress,operate,metrics >"$work/key"
    key=$(sed -n 's/^# BELFRY_API_KEY=//p' "$work/key")
    {
        printf '[server]\nlisten = "127.0.0.1:0"\n'
        grep -v '^#' "$work/key"
        printf '[channels.ios]\nkind = "dry-run"\n'
    } >"$work/belfry.toml"
    mkfifo "$work/ready"
    (cd "$work" && exec "$binary" serve >ready 2>log) &
    engine=$!
    local ready=
    read -r -t 60 ready <"$work/ready" || true
    address=$(sed -n 's/.*"listen":"\([^"]*\)".*/\1/p' <<<"$ready")
    [ -n "$address" ] || { cat "$work/log" >&2; echo "the engine does not start" >&2; exit 1; }
}

stop() {
    [ -z "${engine:-}" ] || kill "$engine" 2>/dev/null || true
    wait
    rm -rf "$work"
}

[ -x "$binary" ] || { echo "$binary is not there: cargo build --locked -p belfry" >&2; exit 1; }
need node nodejs
install_spectral
install_schemathesis
work=$(mktemp -d)
trap stop EXIT

"$tools/spectral/node_modules/.bin/spectral" lint --quiet --fail-severity=warn --ruleset tests/api/spectral.yaml docs/reference/openapi.json

start_engine
# Hooks are found from the folder in which it runs.
cp tests/api/hooks.py tests/api/schemathesis.toml "$work/"
judged=passed
(cd "$work" && "$tools/schemathesis/bin/schemathesis" --config-file schemathesis.toml run "http://$address/openapi.json" \
    --header "Authorization: Bearer $key" --max-examples "$examples" --no-color >said 2>&1) || judged=failed
if [ $judged = failed ]; then
    cat "$work/said" >&2
    exit 1
fi
sed -n 's/^ *\([0-9]* generated.*\)/schemathesis: \1/p' "$work/said"
# Whatever was sent, the engine works on and its account balances.
(cd "$work" && BELFRY_API_KEY=$key "$binary" audit) >"$work/audit" || { cat "$work/audit" >&2; exit 1; }
kill "$engine"
wait "$engine" || { tail -5 "$work/log" >&2; echo "the engine ended with an error" >&2; exit 1; }
if grep -E 'panicked| ERROR ' "$work/log" >&2; then
    echo "the engine has said that something failed" >&2
    exit 1
fi
engine=
