#!/usr/bin/env bash
# Makes a Debian package of a binary of Belfry: belfry_VERSION-1_ARCHITECTURE.deb.
#   scripts/package-deb.sh BINARY DIRECTORY [OPTION OF DPKG-DEB...]     -Zgzip -z1 for a quick one
# The same binary from the same commit makes the same bytes: all times are SOURCE_DATE_EPOCH, by default that of the commit. Needs
# debhelper, and no root. Nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -ge 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
binary=$(readlink -f "$1") to=$2
shift 2
command -v dh >/dev/null || { echo "$0 needs debhelper: install it (make setup-packaging does)" >&2; exit 1; }
. scripts/package-source.sh

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
# dh puts the package beside the folder that it works in.
work=$made/belfry
mkdir "$work"
version=$("$binary" --version | cut -d' ' -f2)
install -m 0755 "$binary" "$work/belfry"
cp -r packaging/debian "$work/debian"
chmod -R u=rwX,go=rX "$work/debian"
chmod 755 "$work/debian/rules"

cat >"$work/debian/changelog" <<CHANGELOG
belfry ($version-1) unstable; urgency=medium

  * /usr/share/doc/belfry/changelog.gz says what has changed.

 -- Belfry <belfry@packages.invalid>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
CHANGELOG
cp CHANGELOG.md "$work/changelog"
"$binary" man "$work/man"
mkdir "$work/bash"
"$binary" completions bash >"$work/bash/belfry"
"$binary" completions zsh >"$work/_belfry"
"$binary" completions fish >"$work/belfry.fish"
"$binary" check-config --print-default >"$work/example.toml"
write_sbom >"$work/belfry.cdx.json"
cp packaging/prometheus/belfry.rules.yml packaging/grafana/belfry-*.json "$work/"
# The units for what is installed by hand, which lies in /usr/local/bin.
for unit in belfry belfry-produce belfry-consume@; do
    name=belfry.$unit
    [ "$unit" != belfry ] || name=belfry
    sed 's|/usr/local/bin/belfry|/usr/bin/belfry|' "docs/deploy/$unit.service" >"$work/debian/$name.service"
done

(cd "$work" && BELFRY_COMPRESSION=$* debian/rules binary >said 2>&1) || { cat "$work/said" >&2; exit 1; }
mkdir -p "$to"
mv "$made"/belfry_*.deb "$to/"
