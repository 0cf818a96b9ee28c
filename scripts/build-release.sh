#!/usr/bin/env bash
# Builds the binary that is packaged: DIRECTORY/belfry. The same source and compiler make the same bytes, wherever the source and the
# build folder lie: their paths, which panics and assertions name, are replaced. A build of its own, since these flags concern every
# crate: 7 to 12 minutes on two cores, in `reproducible` in the build folder.
#   scripts/build-release.sh DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# = 1 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
# A C library (mimalloc) says when it was compiled: by SOURCE_DATE_EPOCH the compiler says the time of the commit.
. scripts/package-source.sh
target=${CARGO_TARGET_DIR:-$PWD/target}/reproducible
home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
# Cargo does not know that it depends on the time.
CARGO_TARGET_DIR=$target cargo clean --quiet --release --package libmimalloc-sys
# The last one that fits counts. Of C, the compiler's option of the same effect (aws-lc, SQLite, mimalloc).
rust="--remap-path-prefix=$home=/cargo --remap-path-prefix=$sysroot=/rust --remap-path-prefix=$target=/target --remap-path-prefix=$PWD=/belfry"
c="-ffile-prefix-map=$home=/cargo -ffile-prefix-map=$target=/target -ffile-prefix-map=$PWD=/belfry"
env -u RUSTC_WRAPPER RUSTFLAGS="$rust" CFLAGS="$c" CXXFLAGS="$c" CARGO_INCREMENTAL=0 CARGO_TARGET_DIR="$target" \
    cargo build --release --locked -p belfry
install -D -m 0755 "$target/release/belfry" "$1/belfry"
