#!/usr/bin/env bash
# Fuzzes the HTTP/2 client with libFuzzer, guided by coverage: crates/net/fuzz. Needs the toolchain of the build and a C++ compiler.
#   scripts/fuzz.sh [SECONDS]             both targets, two thirds of SECONDS (60) for the reader and one third for HPACK
#   scripts/fuzz.sh --replay TARGET FILE  plays one input again: reader or hpack
#   scripts/fuzz.sh --build               builds them, and no more
#   scripts/fuzz.sh --corpus              makes the corpus anew: of the seeds, of what is in it, and of what was found here
# What is found on the way is kept in `fuzz` in the build folder, and the next run begins with it.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '3,6s/^# *//p' "$0" >&2; exit 2; }

package=crates/net/fuzz
corpus=$PWD/$package/corpus
# Longer inputs are slower, and bounds beyond are tested by hand.
length_max=4096
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-$PWD/target}
fuzz=$target/fuzz
programs=$fuzz/$host/release

build() {
    command -v c++ >/dev/null || { echo "libFuzzer is built with a C++ compiler (c++): install g++ or clang" >&2; exit 1; }
    # Stable Rust has all that libFuzzer needs, except sanitizers, which unsafe code would need. With --target, no program of the
    # build itself gets these flags.
    local flags=(-Cpasses=sancov-module) flag
    for flag in level=4 inline-8bit-counters pc-table trace-compares; do
        flags+=("-Cllvm-args=-sanitizer-coverage-$flag")
    done
    RUSTFLAGS=${flags[*]} CARGO_TARGET_DIR=$fuzz \
        cargo build --release --locked --quiet --manifest-path "$package/Cargo.toml" --target "$host"
}

run() { # TARGET SECONDS
    local known=$fuzz/corpus/$1 found=$fuzz/found log=$fuzz/$1.log
    mkdir -p "$known" "$found"
    # A round of 10 s without an end is a finding as well, and so is memory that grows.
    if "$programs/$1" -max_total_time="$2" -max_len=$length_max -timeout=10 -rss_limit_mb=512 -print_final_stats=1 \
        -artifact_prefix="$found/$1-" "$known" "$corpus/$1" >"$log" 2>&1; then
        grep -o '^Done .*' "$log" | sed "s/^/$1: /"
        return
    fi
    grep -v '^#\|^INFO\|^WARNING' "$log" | tail -40
    local input
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
    [ -z "$input" ] || echo "$1: a fault. To play it again: scripts/fuzz.sh --replay $1 $input"
    return 1
}

remake_corpus() {
    local name merged
    seeds=$(mktemp -d)
    trap 'rm -rf "$seeds"' EXIT
    BELFRY_FUZZ_SEEDS=$seeds cargo test --quiet --locked -p net --lib seeds
    for name in reader hpack; do
        merged=$seeds/merged-$name
        mkdir -p "$merged" "$fuzz/corpus/$name" "$corpus/$name"
        # The few that reach every place together; how often each is reached would make thousands.
        "$programs/$name" -set_cover_merge=1 -use_counters=0 -max_len=$length_max \
            "$merged" "$seeds/$name" "$corpus/$name" "$fuzz/corpus/$name" >"$fuzz/$name.log" 2>&1
        # Of more than fifty the longest, which reach the most.
        (cd "$merged" && find . -type f -printf '%s %p\n' | sort -k 1,1nr -k 2 | tail -n +51 | cut -d' ' -f2 | xargs -r rm)
        rm -rf "${corpus:?}/$name"
        mv "$merged" "$corpus/$name"
        echo "$name: $(find "$corpus/$name" -type f | wc -l) inputs"
    done
}

case ${1:-60} in
    --replay)
        [ $# = 3 ] || usage
        build
        "$programs/$2" "$3"
        ;;
    --build) build ;;
    --corpus)
        build
        remake_corpus
        ;;
    *[!0-9]* | 0) usage ;;
    *)
        build
        seconds=${1:-60}
        run reader $((seconds * 2 / 3)) &
        reader=$!
        failed=0
        run hpack $((seconds / 3)) || failed=1
        wait $reader || failed=1
        exit $failed
        ;;
esac
