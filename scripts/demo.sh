#!/usr/bin/env bash
# Builds Belfry, fetches the example payloads of GitHub's webhooks, and runs `belfry demo` with them.
# Arguments are passed on: scripts/demo.sh --notifications 100000
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
payloads=.demo-payloads/package/api.github.com/index.json

if [ ! -f "$payloads" ]; then
    if ! command -v npm >/dev/null; then
        as_root=(); [ "$(id -u)" = 0 ] || as_root=(sudo)
        "${as_root[@]}" apt-get update -q
        "${as_root[@]}" apt-get install -qy --no-install-recommends npm
    fi
    mkdir -p .demo-payloads
    (cd .demo-payloads && npm pack --silent @octokit/webhooks-examples@7.6.1 && tar xf octokit-webhooks-examples-*.tgz)
fi

cargo build --release --locked -p belfry
exec "$target/release/belfry" demo --payloads "$payloads" "$@"
