#!/usr/bin/env bash
# Ends with an error when the disk has too little room for a build and its tests. On a full disk tests fail in many ways, and those
# of a store that waits for space wait for ever.
set -euo pipefail

# GiB that the tests write at a time, and a build of everything that they need: 2 and 6.5 by measure, and some room.
tests=4 build=8
build_folder=${CARGO_TARGET_DIR:-target}
test_folder=${TMPDIR:-/tmp}
mkdir -p "$build_folder"

require() { # FOLDER GIB WHAT_FOR
    local free
    free=$(df --output=avail --block-size=1G "$1" | tail -1)
    [ "$free" -ge "$2" ] && return
    echo "$1 has $free GiB of free space, and $3 needs $2: free some, or name another place with CARGO_TARGET_DIR (build) and TMPDIR (tests)" >&2
    exit 1
}

if [ -d "$build_folder/debug/deps" ]; then
    require "$build_folder" 4 "a build of what changed"
else
    require "$build_folder" $((build + tests)) "a build with its tests"
fi
require "$test_folder" $tests "a run of the tests"
