#!/usr/bin/env bash
# Sets up the servers that the tests start. PostgreSQL, RabbitMQ and NATS are installed from the distribution's packages, unless
# they are there, or BELFRY_TEST_..._URL names one that runs elsewhere; no service is started. So are nghttpd, h2load and Node.js, which have
# no service. Chromium, which opens the dashboard, is that of Debian; elsewhere BELFRY_CHROMIUM names one, or a Chrome. Mail servers, nginx, HAProxy, Prometheus, Netty and python3-hpack are unpacked into the build folder (unpack-servers.sh says why). Nothing of the machine
# is replaced, and what will be done is said first. A Go toolchain and a JDK are used where there are some, and not installed.
# Kafka is fetched into the build folder (fetch-kafka.sh), and run by a JRE. With `--packaging` only the tools are installed that make packages and judge them.
set -euo pipefail
cd "$(dirname "$0")/.."

in_path_or() { # PROGRAM PLACE...
    command -v "$1" >/dev/null || { shift; compgen -G "$1" >/dev/null; }
}

missing=()
# With --packaging only these: they make the Debian package and judge it and the image; debhelper brings dpkg-dev and a strip of its own.
in_path_or dh '/usr/bin/dh' || missing+=(debhelper)
in_path_or lintian '/usr/bin/lintian' || missing+=(lintian)
in_path_or skopeo '/usr/bin/skopeo' || missing+=(skopeo)
in_path_or umoci '/usr/bin/umoci' || missing+=(umoci)
in_path_or jq '/usr/bin/jq' || missing+=(jq)
in_path_or ip '/usr/sbin/ip' || missing+=(iproute2)
# The package makes its user with it.
in_path_or systemd-sysusers '/usr/bin/systemd-sysusers' || missing+=(systemd)
if [ "${1:-}" = --packaging ]; then
    unpacked=
else
    [ -n "${BELFRY_TEST_POSTGRES_URL:-}" ] || in_path_or initdb '/usr/lib/postgresql/*/bin/initdb' || missing+=(postgresql)
    [ -n "${BELFRY_TEST_RABBITMQ_URL:-}" ] || in_path_or rabbitmq-server '/usr/lib/rabbitmq/bin/rabbitmq-server' \
        || missing+=(rabbitmq-server)
    [ -n "${BELFRY_TEST_NATS_URL:-}" ] || in_path_or nats-server '/usr/sbin/nats-server' || missing+=(nats-server)
    in_path_or nghttpd '/usr/sbin/nghttpd' || missing+=(nghttp2-server)
    # The floor of `belfry bench`.
    in_path_or h2load '/usr/bin/h2load' || missing+=(nghttp2-client)
    in_path_or node '/usr/bin/node' || missing+=(nodejs)
    # Installs a judge of the API's description, and a client of it.
    in_path_or npm '/usr/bin/npm' || missing+=(npm)
    # Opens the dashboard.
    [ -n "${BELFRY_CHROMIUM:-}" ] || in_path_or chromium '/usr/bin/chromium' || missing+=(chromium)
    # `openssl s_client` asks the engine's listener for old protocols and ciphers.
    in_path_or openssl '/usr/bin/openssl' || missing+=(openssl)
    # Scrapes metrics for promtool.
    in_path_or curl '/usr/bin/curl' || missing+=(curl)
    # libFuzzer is built with it.
    in_path_or c++ '/usr/bin/c++' || missing+=(g++)
    # Verifies signatures of mail; Ed25519 ones with the second.
    /usr/bin/python3 -c 'import dkim, nacl' 2>/dev/null || missing+=(python3-dkim python3-nacl)
    # fetch-kafka.sh and fetch-aws-servers.sh fetch Kafka and ElasticMQ with Maven, which run in Java, and moto with pip.
    in_path_or java '/usr/lib/jvm/*/bin/java' || missing+=(default-jre-headless)
    in_path_or mvn '/usr/bin/mvn' || missing+=(maven)
    /usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    unpacked=$(scripts/unpack-servers.sh --list)
fi
[ ${#missing[@]} -gt 0 ] || [ -n "$unpacked" ] || exit 0
[ ${#missing[@]} -eq 0 ] || echo "the tests need these packages, which apt-get will install: ${missing[*]}"
[ -z "$unpacked" ] || echo "the tests need these packages, which are unpacked into the build folder and not installed: $unpacked"

needed="the tests need ${missing[*]} $unpacked"
instead="install what is missing, or name running servers: BELFRY_TEST_POSTGRES_URL, BELFRY_TEST_RABBITMQ_URL, BELFRY_TEST_NATS_URL"
command -v apt-get >/dev/null || { echo "$needed: $instead" >&2; exit 1; }
as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "$needed; as root: $instead" >&2; exit 1; }
    as_root=(sudo)
fi

"${as_root[@]}" apt-get update -q
[ -z "$unpacked" ] || scripts/unpack-servers.sh
[ ${#missing[@]} -gt 0 ] || exit 0

# A package starts its service unless this file forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
