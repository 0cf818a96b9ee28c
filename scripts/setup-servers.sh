#!/usr/bin/env bash
# Installs the servers that the tests start: PostgreSQL, RabbitMQ, NATS, Postfix, from the distribution's packages. Does nothing
# for those that are there, or that BELFRY_TEST_..._URL names as running elsewhere. No service is started.
set -euo pipefail

in_path_or() { # PROGRAM PLACE...
    command -v "$1" >/dev/null || { shift; compgen -G "$1" >/dev/null; }
}

missing=()
[ -n "${BELFRY_TEST_POSTGRES_URL:-}" ] || in_path_or initdb '/usr/lib/postgresql/*/bin/initdb' || missing+=(postgresql)
[ -n "${BELFRY_TEST_RABBITMQ_URL:-}" ] || in_path_or rabbitmq-server '/usr/lib/rabbitmq/bin/rabbitmq-server' \
    || missing+=(rabbitmq-server)
[ -n "${BELFRY_TEST_NATS_URL:-}" ] || in_path_or nats-server '/usr/sbin/nats-server' || missing+=(nats-server)
in_path_or postfix /usr/sbin/postfix || missing+=(postfix)
# Verifies signatures of mail; Ed25519 ones with the second.
/usr/bin/python3 -c 'import dkim, nacl' 2>/dev/null || missing+=(python3-dkim python3-nacl)
[ ${#missing[@]} -gt 0 ] || exit 0

instead="install ${missing[*]}, or name running servers: BELFRY_TEST_POSTGRES_URL, BELFRY_TEST_RABBITMQ_URL, \
BELFRY_TEST_NATS_URL"
command -v apt-get >/dev/null || { echo "the tests need ${missing[*]}: $instead" >&2; exit 1; }
as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "the tests need ${missing[*]}; as root: $instead" >&2; exit 1; }
    as_root=(sudo)
fi

# A package starts its service unless this file forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
