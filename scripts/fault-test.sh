#!/usr/bin/env bash
# A failing disk: scripts/fault-test.sh BINARY
# Makes every fsync fail from the 150th on (EIO), and then every write (ENOSPC), with strace; imports until the engine
# stops; starts it again. Fails when the engine did not end by itself with code 1, when something that it acknowledged
# is gone, when the account does not balance, or when it does not start on what is left.
set -euo pipefail

binary=$(realpath "${1:?usage: fault-test.sh BINARY}")
command -v strace >/dev/null || { echo "strace is missing: apt-get install strace" >&2; exit 1; }
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
    (timeout 120 strace -f -qq -o strace.txt -e trace="$2" -e inject="$3" "$binary" serve >ready 2>"$1.log" || echo $? >code) &
    read -r _ <ready
    acknowledged=$("$binary" import rows.ndjson --json 2>/dev/null | number accepted) || true
    wait
    stored=$("$binary" audit --json | number accepted)
    : "${acknowledged:?the import said nothing}" "${stored:?the audit said nothing}"
    echo "$1: exit code $(cat code), acknowledged $acknowledged, in the store $stored"
    if [ "$(cat code)" != 1 ] || [ "$acknowledged" -eq 0 ] || [ "$stored" -lt "$acknowledged" ]; then
        cat "$1.log"
        echo "$1: a promise was broken" >&2
        exit 1
    fi
    "$binary" serve >ready 2>>"$1.log" &
    read -r -t 30 _ <ready || { echo "$1: it does not start again" >&2; kill $!; exit 1; }
    kill $!
    wait
    rm ready
}

fault fsync-EIO fsync 'fsync:error=EIO:when=150+'
fault write-ENOSPC pwrite64 'pwrite64:error=ENOSPC:when=4000+'
echo "nothing that was acknowledged is lost"
