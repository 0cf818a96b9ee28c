#!/usr/bin/env bash
# Has promtool, the linter of Prometheus, judge the alerts and the dashboards for Grafana that are shipped; the metrics of an engine that has delivered, has something to
# try again, a feed whose receiver is not there, and a source that cannot be reached; and those that it shows to a tenant. It fails at
# whatever promtool says, and if a metric of these is missing.
# promtool is one that is in PATH, or unpacked by unpack-servers.sh. One that cannot be had is an error, and never passed over.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/api-engine.sh

promtool=$(command -v promtool || echo "$tools/../servers/prometheus/usr/bin/promtool")
[ -x "$promtool" ] || { echo "$0 needs promtool: unpack it (make setup-servers does)" >&2; exit 1; }
need curl curl

# The alerts: each fires when it should, names a section of the runbooks, and looks at metrics that there are.
rules=packaging/prometheus/belfry.rules.yml
"$promtool" check rules --lint-fatal "$rules"
"$promtool" test rules "${rules%.yml}.test.yml"
sed -n "s/^ *runbook: [\"']\(.*\)[\"']$/\1/p" "$rules" | while IFS= read -r title; do
    grep -qxF "## $title" docs/runbooks.md || { echo "docs/runbooks.md has no section \"$title\"" >&2; exit 1; }
done
grep -oE 'belfry_[a-z_]+' "$rules" | sort -u | while IFS= read -r name; do
    # The library adds the suffix of a counter.
    grep -qrF "\"${name%_total}\"" crates --include=*.rs || { echo "$rules looks at $name, which no process has" >&2; exit 1; }
done

# The dashboards for Grafana: each expression is one that Prometheus takes, of metrics that docs/metrics.md has.
need jq jq
for board in packaging/grafana/*.json; do
    jq -er '.panels[] | .targets[]? | .expr' "$board" | sed 's/\$__rate_interval/5m/g; s/\$[a-z]*/.*/g' >"$work/expressions"
    jq -R '{record: "judged:expression", expr: ., labels: {line: "\(input_line_number)"}}' "$work/expressions" | jq -s '{groups: [{name: "judged", rules: .}]}' >"$work/board.rules.yml"
    "$promtool" check rules "$work/board.rules.yml" >"$work/said" || { cat "$work/said" >&2; echo "$board has an expression that is none" >&2; exit 1; }
    grep -oE 'belfry_[a-z_]+' "$work/expressions" | sed -E 's/_(bucket|count)$//' | sort -u | while IFS= read -r name; do
        grep -qF "\`$name\`" docs/metrics.md || { echo "$board looks at $name, which docs/metrics.md does not have" >&2; exit 1; }
    done
    jq -e '[.panels[].id] | length == (unique | length)' "$board" >/dev/null || { echo "$board has two panels of one number" >&2; exit 1; }
done

"$binary" api-key shop --tenant shop --scopes metrics >"$work/shop"
# Nothing listens at port 1.
start_engine "$(grep -v '^#' "$work/shop")"'
[[feeds]]
name = "ends"
channel = "hooks"
to = "http://127.0.0.1:1/ends"
[[sources]]
name = "orders"
url = "nats://127.0.0.1:1/orders"
drop_bad_messages = true'
export BELFRY_URL=http://$address BELFRY_API_KEY=$key
run() { (cd "$work" && "$binary" "$@") >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }; }
run test ios anyone
run send --channel hooks --to http://127.0.0.1:1/hook --content '{}'

scrape() { curl -sS --fail -H "authorization: Bearer ${1:-$key}" -H 'accept: text/plain' "$BELFRY_URL/metrics" -o "$work/metrics"; }
has() { grep -q "^$1 [0-9]" "$work/metrics"; }
present=('belfry_deliveries_total{channel="ios",outcome="delivered"}' 'belfry_deliveries_total{channel="hooks",outcome="deferred"}'
    'belfry_due_to_accepted_seconds_count{channel="ios"}' 'belfry_feed_lag_seconds{feed="ends"}' 'belfry_removed_total{what="contents"}'
    'belfry_source_messages_total{source="orders",fate="read"}' 'belfry_source_failing{source="orders"}' 'belfry_notifications{state="pending"}' 'belfry_store_used_bytes')
for ((tries = 0; ; tries++)); do
    scrape
    missing=
    for metric in "${present[@]}"; do has "$metric" || missing=$metric; done
    [ -n "$missing" ] || break
    [ $tries -lt 300 ] || { cat "$work/metrics" >&2; echo "the metrics lack $missing" >&2; exit 1; }
    sleep 0.2
done
"$promtool" check metrics <"$work/metrics"
of_all=$(grep -c '^# TYPE' "$work/metrics")
scrape "$(sed -n 's/^# BELFRY_API_KEY=//p' "$work/shop")"
has belfry_notifications_accepted_total || { cat "$work/metrics" >&2; echo "the metrics of a tenant lack its account" >&2; exit 1; }
if has 'belfry_store_used_bytes'; then echo "a tenant sees the metrics of the process" >&2; exit 1; fi
"$promtool" check metrics <"$work/metrics"
stop_engine
echo "promtool: $of_all metrics, and $(grep -c '^# TYPE' "$work/metrics") of a tenant"
