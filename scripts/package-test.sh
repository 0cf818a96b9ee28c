#!/usr/bin/env bash
# Makes the Debian package and the container image of a development build, twice, and expects the same bytes; installs the package in a
# root directory that is thrown away (an overlay of this machine's), runs what is in both, and holds them against programs of others:
# lintian, systemd-analyze, the validator of CycloneDX, skopeo and umoci. Nothing is installed on this machine. Needs Linux and root, for
# namespaces.
#   scripts/package-test.sh
# Within its namespaces it calls itself. What is mounted there ends with them: nothing is removed while something is mounted below it.
set -euo pipefail
cd "$(dirname "$0")/.."

same() { # THING FOUND EXPECTED
    [ "$2" = "$3" ] || { printf '%s:\n%s\nand not\n%s\n' "$1" "$2" "$3" >&2; exit 1; }
}

# Waits until the engine says where it listens, which it does when it works.
await_ready() { # FIFO
    local ready=
    read -r -t 60 ready <"$1" || true
    same "what the engine says when it works" "$ready" '{"listen":"127.0.0.1:8473"}'
}

# Devices of its own and the processes of this namespace, for programs whose root directory is ROOT.
furnish() { # ROOT
    mount -t proc proc "$1/proc"
    mount -t tmpfs tmpfs "$1/dev"
    mknod -m 666 "$1/dev/null" c 1 3
    mknod -m 666 "$1/dev/zero" c 1 5
    mknod -m 666 "$1/dev/random" c 1 8
    mknod -m 666 "$1/dev/urandom" c 1 9
    ln -s /proc/self/fd "$1/dev/fd"
}

# --- the package, in a root directory that is thrown away, without a network ---

check_files() {
    same "changed files" "$(dpkg --verify belfry)" ""
    same "modes" "$(stat -c '%A %U %G %n' /etc/belfry /etc/belfry/example.toml /var/lib/belfry /usr/bin/belfry)" \
        "drwxr-s--- root belfry /etc/belfry
-rw-r--r-- root root /etc/belfry/example.toml
drwx------ belfry belfry /var/lib/belfry
-rwxr-xr-x root root /usr/bin/belfry"
    same "the user" "$(getent passwd belfry | cut -d: -f6-)" "/var/lib/belfry:/usr/sbin/nologin"
    same "conffiles" "$(dpkg-query -W -f '${Conffiles}' belfry | awk 'NF { print $1 }')" /etc/belfry/example.toml
    same "enabled units" "$(find /etc/systemd -name 'belfry*')" ""
    for page in belfry belfry-serve belfry-keys-add; do [ -s "/usr/share/man/man1/$page.1.gz" ]; done
    bash -c 'source /usr/share/bash-completion/completions/belfry && complete -p belfry' >said
    diff -r /usr/share/belfry/grafana "$source/packaging/grafana"
    cmp /usr/share/belfry/prometheus/belfry.rules.yml "$source/packaging/prometheus/belfry.rules.yml"
    zcat /usr/share/doc/belfry/changelog.gz | cmp - "$source/CHANGELOG.md"
}

check_units() {
    local unit
    for unit in belfry belfry-produce belfry-consume@; do
        # But for the place of the program, they are those of the documentation.
        sed 's|/usr/bin/belfry|/usr/local/bin/belfry|' "/lib/systemd/system/$unit.service" | cmp - "$source/docs/deploy/$unit.service"
    done
    cp /lib/systemd/system/belfry-consume@.service ./belfry-consume@8481.service
    systemd-analyze --man=no verify /lib/systemd/system/belfry.service /lib/systemd/system/belfry-produce.service \
        ./belfry-consume@8481.service
    # From 0, for a service that can do nothing, to 100.
    systemd-analyze security --offline=true --threshold=20 /lib/systemd/system/belfry.service >said || { cat said >&2; exit 1; }
}

# The three lines of docs/deploy, but that the unit's command is run by hand: there is no systemd to start it.
run_service() {
    belfry init /etc/belfry --store /var/lib/belfry >said
    grep -qx '  systemctl enable --now belfry' said
    same "the configuration" "$(stat -c '%A %U %G' /etc/belfry/belfry.toml)" "-rw-r----- root belfry"
    local start engine
    start=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/belfry.service)
    mkfifo ready
    # The words of a unit's command are split as those of a shell, where there are no quotes.
    # shellcheck disable=SC2086
    (cd /var/lib/belfry && umask 077 && exec setpriv --reuid belfry --regid belfry --clear-groups env -i $start) >ready 2>log &
    engine=$!
    await_ready ready
    # Whoever may not read the configuration asks where an engine listens by default.
    setpriv --reuid nobody --regid nogroup --clear-groups belfry health >said
    belfry health --ready >said
    belfry test --api-key-file /etc/belfry/belfry.key dry-run anyone >said
    grep -q ' delivered: dry-run to anyone' said
    kill "$engine"
    wait "$engine"
    same "what others can read" "$(find /var/lib/belfry -perm /077)" ""
    # The operator's key is no business of the engine's.
    ! setpriv --reuid belfry --regid belfry --clear-groups test -r /etc/belfry/belfry.key || exit 1
}

upgrade_remove_purge() { # PACKAGE
    local before
    chmod g-s /etc/belfry
    before=$(left)
    dpkg --force-unsafe-io -i "$1" >said 2>&1
    same "what an upgrade leaves" "$(left)" "$before"
    dpkg --force-unsafe-io -r belfry >said 2>&1
    same "what a removal leaves" "$(left)" "$before"
    touch /etc/belfry/AuthKey.p8
    dpkg --force-unsafe-io -P belfry >said 2>&1
    grep -q '^belfry: /var/lib/belfry is kept' said
    same "what a purge leaves in /etc/belfry" "$(ls -A /etc/belfry)" AuthKey.p8
    [ -e /var/lib/belfry/belfry.db ]
    rm -r /etc/belfry /var/lib/belfry
    dpkg --force-unsafe-io -i "$1" >said 2>&1
    dpkg --force-unsafe-io -P belfry >said 2>&1
    same "what a purge leaves of what was never used" "$(find /etc /var/lib /lib/systemd /usr/bin -name '*belfry*')" ""
}

# All that an operator would miss.
left() {
    cat /etc/belfry/belfry.toml /etc/belfry/belfry.key
    stat -c '%A %U %G' /etc/belfry
    ls -lnR /var/lib/belfry
}

in_package() { # PACKAGE FOLDER
    # A file system of its own, since the one below may be an overlay itself.
    mount -t tmpfs tmpfs "$2"
    mkdir "$2"/{upper,work,tree}
    mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$2/tree"
    mkdir -p "$2/tree/mnt/"{source,package,test}
    mount --bind -o ro "$PWD" "$2/tree/mnt/source"
    mount --bind -o ro "$(dirname "$1")" "$2/tree/mnt/package"
    touch "$2/tree/mnt/test/thrown-away"
    furnish "$2/tree"
    chroot "$2/tree" /bin/bash /mnt/source/scripts/package-test.sh --in-root "/mnt/package/$(basename "$1")"
}

in_root() { # PACKAGE
    [ -e /mnt/test/thrown-away ] || { echo "this is no root directory to install a test in" >&2; exit 1; }
    source=$PWD
    cd /mnt/test
    dpkg --force-unsafe-io -i "$1" >said 2>&1 || { cat said >&2; exit 1; }
    check_files
    check_units
    run_service
    upgrade_remove_purge "$1"
}

# --- the image, as a container runs it ---

in_image() { # ROOT COMMAND-OF-HEALTH-CHECK...
    local root=$1 engine inside=(env -i PATH=/usr/bin /usr/sbin/chroot)
    shift
    furnish "$root"
    "${inside[@]}" --userspec=65532:65532 "$root" belfry init /etc/belfry --store /var/lib/belfry >/dev/null
    mkfifo "$root.ready"
    (exec "${inside[@]}" --userspec=65532:65532 "$root" belfry serve) >"$root.ready" 2>"$root.log" &
    engine=$!
    await_ready "$root.ready"
    "${inside[@]}" --userspec=65532:65532 "$root" "$@" >/dev/null
    "${inside[@]}" --userspec=65532:65532 "$root" belfry test --api-key-file /etc/belfry/belfry.key dry-run anyone >/dev/null
    kill "$engine"
    wait "$engine"
    if "${inside[@]}" --userspec=65532:65532 "$root" "$@" 2>/dev/null; then
        echo "the health check passes without an engine" >&2
        exit 1
    fi
    same "what the user has made elsewhere" "$(find "$root" -xdev -uid 65532 ! -path '*/lib/belfry*' ! -path '*/etc/belfry*')" ""
}

# --- outside ---

# Runs this script with ARGUMENTS in namespaces of its own: mounts, processes, and a network with nothing but loopback.
isolated() {
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" unshare --mount --net --pid --fork --kill-child "$BASH" -c 'ip link set lo up && exec "$@"' - "$BASH" "$0" "$@"
}

in_parallel() { # COMMAND-OF-ONE-LINE...
    local command process processes=()
    for command in "$@"; do
        bash -c "$command" &
        processes+=($!)
    done
    for process in "${processes[@]}"; do wait "$process" || exit 1; done
}

check_bill() { # FILE
    "$tools/cyclonedx/bin/python" - "$1" <<'PYTHON'
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

with open(sys.argv[1], encoding="utf-8") as bill:
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill.read())
sys.exit(str(error) if error else 0)
PYTHON
    # A crate, one of ours, and C libraries that no list of crates has; and no crate of tests.
    local name
    for name in tokio store SQLite AWS-LC mimalloc rust-std; do
        jq -e --arg name "$name" '.components | any(.name == $name)' "$1" >/dev/null || { echo "the bill lacks $name" >&2; exit 1; }
    done
    jq -e '.components | all(.name != "proptest")' "$1" >/dev/null
}

check_image() { # ARCHIVE
    mkdir "$work/layout"
    tar -xf "$1" -C "$work/layout"
    local config=$work/layout/blobs/sha256/ root=$work/bundle/rootfs layout health
    layout=$work/layout:$("$binary" --version | cut -d' ' -f2)
    # Both formats are read by others, and every digest is right.
    skopeo copy -q "docker-archive:$1" "dir:$work/docker"
    skopeo copy -q "oci:$layout" "dir:$work/oci"
    umoci unpack --image "$layout" "$work/bundle" >/dev/null
    config+=$(skopeo inspect --raw "oci:$layout" | jq -r '.config.digest | ltrimstr("sha256:")')
    same "the image's settings" "$(jq -c '.config | [.User, .WorkingDir, .Volumes, .StopSignal, .Entrypoint, .Cmd]' "$config")" \
        '["65532:65532","/var/lib/belfry",{"/var/lib/belfry":{}},"SIGTERM",["belfry"],["serve"]]'
    same "the health check" "$(jq -c .config.Healthcheck "$config")" \
        '{"Test":["CMD","belfry","health"],"Interval":10000000000,"Timeout":5000000000,"StartPeriod":60000000000,"Retries":3}'
    same "programs of the image" "$(find "$root" -path '*bin/*' -printf '/%P\n')" /usr/bin/belfry
    cmp "$root/usr/share/doc/belfry/belfry.cdx.json" "$work/belfry.cdx.json"
    [ "$(grep -c 'BEGIN CERTIFICATE' "$root/etc/ssl/certs/ca-certificates.crt")" -gt 100 ]
    mapfile -t health < <(jq -r '.config.Healthcheck.Test[1:][]' "$config")
    isolated --in-image "$root" "${health[@]}"
}

outside() {
    # Sets `work`, which is removed at the end.
    . scripts/api-engine.sh
    local program package image
    for program in dh:debhelper lintian:lintian skopeo:skopeo umoci:umoci jq:jq systemd-analyze:systemd ip:iproute2; do
        need "${program%:*}" "${program#*:}"
    done
    install_python_packages cyclonedx tests/packages
    export BELFRY_XTASK=$tools/../debug/xtask
    [ -x "$BELFRY_XTASK" ] || { echo "$BELFRY_XTASK is not there: cargo build --locked -p xtask" >&2; exit 1; }
    . scripts/package-source.sh
    # In two folders, for users with different habits. Packaging strips it; once is enough.
    strip -o "$work/belfry" "$binary"
    in_parallel "scripts/package-deb.sh $work/belfry $work/1 -Zgzip -z1" "umask 077; scripts/package-deb.sh $work/belfry $work/2 -Zgzip -z1"
    package=$(echo "$work"/1/*.deb)
    image=${package%.deb}.image.tar
    cmp "$package" "$work/2/${package##*/}"
    dpkg-deb --fsys-tarfile "$package" | tar -xO ./usr/share/doc/belfry/belfry.cdx.json >"$work/belfry.cdx.json"
    check_bill "$work/belfry.cdx.json"
    # Where Debian has replaced a package since it was written down, the test takes the new one; a release waits for `--renew`.
    scripts/package-image.sh --tree "$package" "$work/laid" 2>"$work/said" || {
        sed 's/^/the test goes on with the newest ones: /' "$work/said" >&2
        scripts/package-image.sh --renew "$work/packages"
        export BELFRY_IMAGE_PACKAGES=$work/packages
    }
    mkdir "$work/thrown-away"
    in_parallel "scripts/package-image.sh $package $work/1" "umask 077; scripts/package-image.sh $package $work/2" \
        "lintian --allow-root --fail-on error,warning $package" "bash $0 --installed $package $work/thrown-away"
    cmp "$image" "$work/2/${image##*/}"
    check_image "$image"
}

case ${1:-} in
'') outside ;;
--installed) isolated --in-package "$2" "$3" ;;
--in-package) in_package "$2" "$3" ;;
--in-root) in_root "$2" ;;
--in-image) in_image "${@:2}" ;;
*) echo "usage: $0" >&2; exit 2 ;;
esac
