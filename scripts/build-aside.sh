#!/usr/bin/env bash
# Builds what later steps of `make test` need while its first tests count whole minutes and leave the processors idle: the fuzzers, and
# the receiver of traces. Each of these steps builds what is missing by itself, too, and waits for this where both are at it.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build-otlp-receiver.sh
scripts/fuzz.sh --build
