# For package-deb.sh and package-image.sh, which source it: the time and the contents of what is packaged.

# Of the last commit, unless it is said (reproducible-builds.org, SOURCE_DATE_EPOCH).
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export LC_ALL=C.UTF-8 TZ=UTC

# Prints the bill of materials of the binary for this machine.
write_sbom() {
    local target time
    target=$(rustc -vV | sed -n 's/^host: //p')
    time=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    if [ -n "${BELFRY_XTASK:-}" ]; then "$BELFRY_XTASK" sbom "$target" "$time"
    else cargo run --quiet --locked --package xtask -- sbom "$target" "$time"; fi
}
