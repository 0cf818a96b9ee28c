#!/usr/bin/env bash
# Holds the API and its description (docs/reference/openapi.json) against programs of others: Spectral judges the description,
# promtool the metrics (metrics-judge.sh), and schemathesis sends an engine what the description allows and what it forbids. It fails at an answer that is not described, at a 5xx,
# and at a request that is forbidden and was accepted. What it draws is the same in each run.
#   scripts/api-judges.sh [EXAMPLES]      25 for each operation when nothing is said; more find more
# Both are installed into `tools` in the build folder, in the versions of tests/api; ones that are there are used again. The engine is
# that of a development build. A tool that cannot be had is an error, and never passed over.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/api-engine.sh

examples=${1:-25}

need node nodejs
install_node_packages spectral tests/api
install_python_packages schemathesis tests/api

"$tools/spectral/node_modules/.bin/spectral" lint --quiet --fail-severity=warn --ruleset tests/api/spectral.yaml docs/reference/openapi.json

start_engine
# Hooks are found from the folder in which it runs.
cp tests/api/hooks.py tests/api/schemathesis.toml "$work/"
(cd "$work" && "$tools/schemathesis/bin/schemathesis" --config-file schemathesis.toml run "http://$address/openapi.json" \
    --header "Authorization: Bearer $key" --max-examples "$examples" --no-color >said 2>&1) || { cat "$work/said" >&2; exit 1; }
sed -n 's/^ *\([0-9]* generated.*\)/schemathesis: \1/p' "$work/said"
stop_engine

scripts/metrics-judge.sh
