#!/usr/bin/env bash
# Makes a container image of a Debian package of Belfry, without a registry and without a daemon: belfry_VERSION_ARCHITECTURE.image.tar,
# in the format of `docker save` (an OCI layout, too), for `docker load`, `podman load` and `skopeo copy`.
#   scripts/package-image.sh PACKAGE.deb DIRECTORY            the image
#   scripts/package-image.sh --tree PACKAGE.deb DIRECTORY     only what is in it: DIRECTORY/tree, and DIRECTORY/own of its user
#   scripts/package-image.sh --renew FILE                     writes the newest versions of Debian's packages down
# In it are the packages of Debian that packaging/image/packages.ARCHITECTURE (or BELFRY_IMAGE_PACKAGES) names by their SHA-256, as far as a
# program without a shell has use for them, and Belfry. The same package makes the same bytes. Needs apt, and no root.
set -euo pipefail
cd "$(dirname "$0")/.."

# A C library, its licence texts and the release it is from, and the authorities that providers' certificates are signed by.
packages=(base-files ca-certificates gcc-12-base libc6 libgcc-s1)
arch=$(dpkg --print-architecture)
lock=$(readlink -f "${BELFRY_IMAGE_PACKAGES:-packaging/image/packages.$arch}")
# Of the user that the Dockerfile names: one that no other image gives to anything, and that needs no name.
user=65532

download() { # PACKAGE[=VERSION]... into the working directory
    apt-get download -q -o APT::Sandbox::User=root "$@" >said 2>&1 || { cat said >&2; return 1; }
    rm said
}

renew() { # FILE
    local file
    file=$(readlink -f "$1")
    cd "$work"
    download "${packages[@]}"
    sha256sum -- *.deb >"$file"
}

# The packages of the lock file, and nothing else.
fetch() {
    local wanted=() name version _
    while IFS=_ read -r name version _; do wanted+=("$name=${version//%3a/:}"); done < <(cut -c 67- "$lock")
    (cd "$work/archives" && download "${wanted[@]}" && sha256sum --check --quiet "$lock") || {
        echo "the packages of $lock cannot be had: is this Debian 12? Where Debian has replaced one, $0 --renew $lock takes the new one" >&2
        exit 1
    }
}

unpack() { # ARCHIVE ROOT
    # A directory must not take the place of a link like lib -> usr/lib.
    dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink --no-same-owner -C "$2"
}

# Lays the contents of the image of PACKAGE down in DIRECTORY.
lay_down() { # PACKAGE DIRECTORY
    local root=$2/tree system=$work/system archive name
    mkdir -p "$root" "$2"/own/{etc,var/lib}/belfry "$system" "$work/archives" "$work/belfry"
    fetch
    for archive in "$work"/archives/*.deb; do unpack "$archive" "$root"; done
    mkdir -p "$root/etc/ssl/certs"
    cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
    # Programs, and what is for programs and people that are not there.
    (cd "$root" && mv etc usr/share "$system/" && rm -rf bin sbin usr/bin usr/sbin home root var usr/lib/*/gconv usr/lib/*/audit)
    mkdir -p "$root"/{etc/ssl/certs,tmp,usr/bin,usr/share/doc,var/lib/dpkg/status.d}
    for name in debian_version host.conf ssl/certs/ca-certificates.crt os-release; do
        [ ! -L "$system/etc/$name" ] && [ ! -e "$system/etc/$name" ] || cp -P "$system/etc/$name" "$root/etc/$name"
    done
    for name in "$system"/share/doc/*; do
        [ ! -f "$name/copyright" ] || install -D -m 0644 "$name/copyright" "$root/usr/share/doc/${name##*/}/copyright"
    done
    cp -r "$system/share/common-licenses" "$root/usr/share/"
    unpack "$1" "$work/belfry"
    cp "$work/belfry/usr/bin/belfry" "$root/usr/bin/"
    cp -r "$work/belfry/usr/share/doc/belfry" "$root/usr/share/doc/"
    # What scanners ask for the versions of packages where there is no dpkg.
    for archive in "$work"/archives/*.deb "$1"; do
        dpkg-deb --field "$archive" >"$root/var/lib/dpkg/status.d/$(dpkg-deb --field "$archive" Package)"
    done
    printf 'root:x:0:0:root:/:/usr/sbin/nologin\nbelfry:x:%s:%s:Belfry:/var/lib/belfry:/usr/sbin/nologin\n' "$user" "$user" >"$root/etc/passwd"
    printf 'root:x:0:\nbelfry:x:%s:\n' "$user" >"$root/etc/group"
    echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
    chmod -R u=rwX,go=rX "$root"
    chmod 1777 "$root/tmp"
    chmod -R u=rwX,go=rX "$2/own"
    chmod 0700 "$2"/own/{etc,var/lib}/belfry
}

# What INSTRUCTION of the last stage of the Dockerfile says.
said_by() { # INSTRUCTION
    sed -n "s/^$1 //p" docs/deploy/Dockerfile | tail -1
}

seconds() { # OPTION: of the health check, in nanoseconds
    said_by HEALTHCHECK | sed -n "s/.*--$1=\([0-9]*\)s .*/\1000000000/p"
}

configuration() { # VERSION DIGEST-OF-LAYER
    local created check healthcheck
    created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    check=$(said_by HEALTHCHECK)
    healthcheck="\"Test\":[\"CMD\", ${check#*CMD [},\"Interval\":$(seconds interval),\"Timeout\":$(seconds timeout)"
    healthcheck+=",\"StartPeriod\":$(seconds start-period),\"Retries\":$(sed 's/.*--retries=\([0-9]*\).*/\1/' <<<"$check")"
    cat <<JSON
{"created":"$created","architecture":"$arch","os":"linux","config":{"User":"$(said_by USER)","ExposedPorts":{"$(said_by EXPOSE)":{}},
"Env":["$(said_by ENV)"],"Entrypoint":$(said_by ENTRYPOINT),"Cmd":$(said_by CMD),"Volumes":{"$(said_by VOLUME)":{}},
"WorkingDir":"$(said_by WORKDIR)","StopSignal":"$(said_by STOPSIGNAL)","Healthcheck":{$healthcheck},
"Labels":{"org.opencontainers.image.title":"belfry","org.opencontainers.image.description":"Notification delivery engine",
"org.opencontainers.image.licenses":"Apache-2.0","org.opencontainers.image.version":"$1","org.opencontainers.image.created":"$created",
"org.opencontainers.image.revision":"$(git rev-parse HEAD 2>/dev/null || echo unknown)"}},
"rootfs":{"type":"layers","diff_ids":["sha256:$2"]},"history":[{"created":"$created","created_by":"scripts/package-image.sh"}]}
JSON
}

same_tar() { # OPTION... of what is the same each time: no names of users, times of the commit, sorted
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --numeric-owner --format=gnu "$@"
}

# Moves FILE to where its digest says, and prints that.
blob() { # FILE
    local digest
    digest=$(sha256sum <"$1" | cut -d' ' -f1)
    mv "$1" "$layout/blobs/sha256/$digest"
    echo "$digest"
}

descriptor() { # TYPE DIGEST
    echo "{\"mediaType\":\"application/vnd.oci.image.$1\",\"digest\":\"sha256:$2\",\"size\":$(stat -c %s "$layout/blobs/sha256/$2")"
}

# The archive: an OCI layout, and manifest.json for programs that know only the older format of Docker.
write_image() { # PACKAGE FILE
    local version layer config manifest root=$work/image/tree
    version=$(dpkg-deb --field "$1" Version)
    layout=$work/layout
    mkdir -p "$layout/blobs/sha256"
    lay_down "$1" "$work/image"
    same_tar --owner=0 --group=0 -cf "$work/layer" -C "$root" .
    same_tar --owner="$user" --group="$user" -rf "$work/layer" -C "$work/image/own" ./etc/belfry ./var/lib/belfry
    layer=$(blob "$work/layer")
    configuration "${version%-*}" "$layer" >"$work/config"
    config=$(blob "$work/config")
    echo "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":$(descriptor config.v1+json "$config")}," \
        "\"layers\":[$(descriptor layer.v1.tar "$layer")}]}" >"$work/manifest"
    manifest=$(blob "$work/manifest")
    echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
    echo "{\"schemaVersion\":2,\"manifests\":[$(descriptor manifest.v1+json "$manifest"),\"annotations\":{" \
        "\"org.opencontainers.image.ref.name\":\"${version%-*}\",\"io.containerd.image.name\":\"docker.io/library/belfry:${version%-*}\"}}]}" \
        >"$layout/index.json"
    echo "[{\"Config\":\"blobs/sha256/$config\",\"RepoTags\":[\"belfry:${version%-*}\"],\"Layers\":[\"blobs/sha256/$layer\"]}]" \
        >"$layout/manifest.json"
    same_tar --owner=0 --group=0 --mode=u=rwX,go=rX -cf "$2" -C "$layout" blobs index.json manifest.json oci-layout
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${1:-} in
--renew) renew "$2"; exit ;;
--tree) . scripts/package-source.sh; lay_down "$(readlink -f "$2")" "$(readlink -m "$3")"; exit ;;
*.deb) ;;
*) sed -n '4,6s/^# *//p' "$0" >&2; exit 2 ;;
esac
. scripts/package-source.sh
mkdir -p "$2"
name=$(basename "$1" .deb)
write_image "$(readlink -f "$1")" "$(readlink -f "$2")/$name.image.tar"
