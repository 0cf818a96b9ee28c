#!/usr/bin/env bash
# Unpacks servers that the tests start into `servers` in the build folder. Needs no root. A version that is unpacked already is used
# again. With `--list` it only names the packages that it would unpack.
#
# Postfix, OpenSMTPD and Exim: their packages exclude each other and whatever mail server the machine has, so each becomes a root
# directory of its own with its programs and their libraries, in which `testbed` runs it.
# nginx and HAProxy: installed, they would be started on port 80 with the machine. `testbed` runs them where they lie, with the
# libraries that the machine lacks. One that is in PATH is used as it is.
# Prometheus: its promtool judges metrics (metrics-judge.sh); installed, its server would be started.
# Netty (4 MB): a library for a server that `testbed` builds where there is a JDK. python3-hpack: a judge of header blocks.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$(cargo metadata --no-deps --offline --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)}
servers=$target/servers
packages=(postfix opensmtpd exim4-daemon-light)
in_place=()
for package in nginx haproxy; do command -v "$package" >/dev/null || in_place+=("$package"); done
in_place+=(libnetty-java python3-hpack)
command -v promtool >/dev/null || in_place+=(prometheus)
packages+=("${in_place[@]}")

candidate() { # PACKAGE: the version that would be installed
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -v '(none)' || true
}

# `name` is a link to the version in use, made when that version is whole.
is_unpacked() { # PACKAGE
    local version
    version=$(candidate "$1")
    [ -e "$servers/$1/usr" ] && { [ -z "$version" ] || [ "$(readlink "$servers/$1")" = "$1_$version" ]; }
}

missing=()
for package in "${packages[@]}"; do is_unpacked "$package" || missing+=("$package"); done
if [ "${1:-}" = --list ]; then
    echo "${missing[*]}"
    exit 0
fi
[ ${#missing[@]} -gt 0 ] || exit 0
command -v apt-get >/dev/null && command -v dpkg >/dev/null || {
    echo "the tests need ${missing[*]}, unpacked from Debian's packages: there is no apt-get here" >&2
    exit 1
}

# The libraries that PACKAGE depends on, and those that they depend on.
libraries_of() { # PACKAGE
    apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$1" \
        | grep '^lib' | sort -u
}

is_installed() { # PACKAGE
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Unpacks PACKAGES into the root directory. Not with `dpkg -x`: it puts a directory in place of a link like lib -> usr/lib.
fetch() { # ROOT PACKAGE...
    local root=$1 archives archive
    shift
    archives=$(mktemp -d "$work/archives-XXXXXX")
    (cd "$archives" && apt-get download -q -o APT::Sandbox::User=root "$@")
    for archive in "$archives"/*.deb; do dpkg --fsys-tarfile "$archive" | tar -x --keep-directory-symlink -C "$root"; done
}

is_elf() { # FILE
    [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]
}

# What the programs of the root directory load, as `ldd` says, with a library that is not found in the machine or there.
loaded_in() { # ROOT
    local places program
    places=$(find "$1" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
    find "$1/usr" -type f -perm -u+x | while read -r program; do
        ! is_elf "$program" || LD_LIBRARY_PATH=$places ldd "$program" 2>/dev/null || true
    done
}

# Adds what the machine has, so that programs run with this directory as their root.
complete() { # ROOT
    local library
    # A server starts commands with it.
    install -D /bin/sh "$1/usr/bin/sh"
    grep -o '/[^ ]*' "$work/loaded" | sort -u | while read -r library; do
        [[ $library == "$1"/* || -e $1$library ]] || install -D "$library" "$1$library"
    done
}

unpack() { # PACKAGE
    local package=$1 root=$work/$1 version
    version=$(candidate "$package")
    [ -n "$version" ] || { echo "there is no package $package: is Debian's main archive among apt's sources?" >&2; exit 1; }
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
    for library in bin sbin lib lib64; do ln -s "usr/$library" "$root/$library"; done
    fetch "$root" "$package"
    if loaded_in "$root" | grep -q 'not found'; then
        local libraries=()
        for library in $(libraries_of "$package"); do is_installed "$library" || libraries+=("$library"); done
        fetch "$root" "${libraries[@]}"
    fi
    loaded_in "$root" >"$work/loaded"
    if grep 'not found' "$work/loaded" >&2; then
        echo "$package needs these libraries, which no package that it depends on has" >&2
        exit 1
    fi
    [[ " ${in_place[*]} " == *" $package "* ]] || complete "$root"
    rm -rf "$servers/${package}_$version"
    mv "$root" "$servers/${package}_$version"
    ln -sfn "${package}_$version" "$servers/$package"
}

mkdir -p "$servers"
work=$(mktemp -d "$servers/unpacking-XXXXXX")
trap 'rm -rf "$work"' EXIT
for package in "${missing[@]}"; do
    echo "unpacking $package into $servers (nothing is installed)"
    unpack "$package"
done
