#!/usr/bin/env bash
# Builds the receiver of traces for the tests, crates/testbed/src/otlp, into `servers` in the build folder, with Go (1.25 or later), which
# fetches the modules of the OpenTelemetry Collector that go.sum names. One that was built of the same sources is used again.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$(cargo metadata --no-deps --offline --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)}
place=$target/servers/otlp-receiver
mkdir -p "$place"
source=crates/testbed/src/otlp
made_of=$(cat "$source"/* | sha256sum)

# One at a time: tests that need it may begin while it is being built.
exec 9>"$place/lock"
flock 9
[ "$(cat "$place/made-of" 2>/dev/null)" != "$made_of" ] || exit 0

go=
for candidate in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go/bin/go; do
    [ -n "$go" ] || [ ! -x "$candidate" ] || go=$candidate
done
[ -n "$go" ] || { echo "the receiver of OTLP is built with Go (1.25 or later): install it" >&2; exit 1; }
(cd "$source" && CGO_ENABLED=0 GOCACHE=$(readlink -f "$target/servers")/go-cache GOFLAGS=-mod=readonly "$go" build -o "$place/receiver" .)
echo "$made_of" >"$place/made-of"
