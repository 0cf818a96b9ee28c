#!/usr/bin/env bash
# A failing disk: scripts/fault-test.sh BINARY
# Makes every fsync fail from the 150th on (EIO), and then every write (ENOSPC), with strace; imports until the engine
# stops; starts it again. Fails when the engine did not end by itself with code 1, when something that it acknowledged
# is gone, or when the account does not balance.
set -euo pipefail

binary=$(realpath "${1:?usage: fault-test.sh BINARY}")
command -v strace >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends strace; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >belfry.toml <<'END'
[server]
listen = "127.0.0.1:18490"
[channels.rehearsal]
kind = "dry-run"
latency = "20s"
END
for i in $(seq 300000); do
    echo "{\"channel\":\"rehearsal\",\"to\":\"recipient-$i\",\"content\":{\"n\":$i}}"
done >rows.ndjson
number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }

fault() { # NAME SYSCALLS INJECTION
    rm -rf data
    mkfifo ready
    echo 0 >code
    (strace -f -qq -o strace.txt -e trace="$2" -e inject="$3" "$binary" serve >ready 2>"$1.log" || echo $? >code) &
    read -r _ <ready
    acknowledged=$("$binary" import rows.ndjson --json 2>/dev/null | number accepted) || true
    wait
    rm ready
    stored=$("$binary" audit --json | number accepted)
    echo "$1: exit code $(cat code), acknowledged $acknowledged, in the store $stored"
    if [ "$(cat code)" != 1 ] || [ "$acknowledged" -eq 0 ] || [ "$stored" -lt "$acknowledged" ]; then
        cat "$1.log"
        echo "$1: a promise was broken" >&2
        exit 1
    fi
}

fault fsync-EIO fsync 'fsync:error=EIO:when=150+'
fault write-ENOSPC pwrite64 'pwrite64:error=ENOSPC:when=4000+'
echo "nothing that was acknowledged is lost"
