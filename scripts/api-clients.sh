#!/usr/bin/env bash
# Generates clients from docs/reference/openapi.json in Python, TypeScript and Go, and runs the programs of `clients` with them against an
# engine: they send, receive and verify a signed callback, list page by page, and cancel. Generators and libraries are those that
# `clients` names, in `tools` in the build folder; what is there is used again. The engine is that of a development build. A Go toolchain is
# used where there is one; without it the client in Go is left out, which is said, and is an error in continuous integration (CI=true).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/api-engine.sh

root=$PWD
description=$root/docs/reference/openapi.json

in_python() {
    install_python_packages python clients/python
    mkdir "$work/python"
    cp clients/python/example.py "$work/python/"
    # Lines and metrics are no types of its: it says so, and leaves these answers out.
    PATH=$tools/python/bin:$PATH openapi-python-client generate --path "$description" --meta none --output-path "$work/python/belfry" \
        >"$work/generated" 2>&1 || { cat "$work/generated" >&2; exit 1; }
    "$tools/python/bin/python" "$work/python/example.py"
}

in_typescript() {
    need node nodejs
    install_node_packages typescript clients/typescript
    local place=$tools/typescript
    cp clients/typescript/example.ts clients/typescript/tsconfig.json "$place/"
    "$place/node_modules/.bin/openapi-typescript" "$description" --output "$place/belfry.ts" >"$work/generated" 2>&1 \
        || { cat "$work/generated" >&2; exit 1; }
    "$place/node_modules/.bin/tsc" --project "$place"
    node "$place/built/example.js"
}

in_go() {
    if ! command -v go >/dev/null; then
        [ "${CI:-}" != true ] || { echo "$0 needs go: install a Go toolchain" >&2; exit 1; }
        echo "there is no Go toolchain: the client in Go is left out" >&2
        return
    fi
    mkdir -p "$work/go/belfry"
    cp clients/go/* "$work/go/"
    (
        cd "$work/go"
        go tool oapi-codegen -generate types,client -package belfry -o belfry/belfry.go "$description"
        go vet .
        go run .
    )
}

start_engine
export BELFRY_URL=http://$address BELFRY_API_KEY=$key WEBHOOK_SECRET=$secret
in_python
in_typescript
in_go
stop_engine
