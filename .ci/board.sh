#!/usr/bin/env bash
# The board and the alerts against a run of the real program: stand-in for mod-authtoken, sidecar, stand-in for Okapi, and a real
# Prometheus that scrapes both; then every expression is checked against what was scraped, and the board is plotted.
#   .ci/board.sh [SECONDS [PICTURE]]       60 seconds; without PICTURE nothing is plotted
# SIDECAR_BIN and STANDIN_BIN name the programs; without: target/debug/okapi-auth-sidecar, target/debug/examples/standin.
# Exit code: 0 all good, 1 a check failed, 3 it could not be run.
# shellcheck disable=SC2317 # the functions are called through check
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. .ci/checks.sh

seconds=${1:-60} picture=${2:-}
sidecar=${SIDECAR_BIN:-target/debug/okapi-auth-sidecar} standin=${STANDIN_BIN:-target/debug/examples/standin}
work=$(mktemp -d)
started=()
finish() {
    for pid in "${started[@]:-}"; do [ -n "$pid" ] && kill "$pid" 2> /dev/null; done
    wait
    rm -rf "$work"
}
trap finish EXIT

need_packages prometheus curl
need_python || { not_run "board: the Python environment of .ci/requirements.txt cannot be made"; summary; }
for program in "$sidecar" "$standin"; do
    [ -x "$program" ] || { not_run "board: $program is not built"; summary; }
done
command -v prometheus > /dev/null || { not_run "board: prometheus is not installed"; summary; }

secret=only-for-this-run-0123
upstream=$(free_port) filter=$(free_port) admin=$(free_port) okapi=$(free_port) prometheus=$(free_port)
# start LOG COMMAND...: in the background, ended with this script.
start() {
    local log=$work/$1.log
    shift
    "$@" > "$log" 2>&1 &
    started+=($!)
}
until_answers() {
    for _ in $(seq 60); do curl -sS -o /dev/null -m 2 "$1" 2> /dev/null && return; sleep 0.25; done
    tail -n 5 "$work"/*.log
    return 1
}
stand_in() { start standin "$standin" --listen "127.0.0.1:$upstream"; }

stand_in
auth_module=$!
# A short life, so that a minute shows misses, refreshes and expiry too.
start sidecar env AUTH_SIDECAR_UPSTREAM_URL="http://127.0.0.1:$upstream" AUTH_SIDECAR_LISTEN="127.0.0.1:$filter" \
    AUTH_SIDECAR_ADMIN_LISTEN="127.0.0.1:$admin" AUTH_SIDECAR_ADMIN_TOKEN="$secret" AUTH_SIDECAR_CACHE_TTL=15s \
    AUTH_SIDECAR_REVOCATION_UPSTREAM_REFRESH=one "$sidecar"
check "board: the sidecar starts" until_answers "http://127.0.0.1:$admin/health/ready" || summary
start gateway "$python/python" deploy/compose/gateway.py --sidecar "http://127.0.0.1:$filter" --recordings tests/golden \
    --metrics "127.0.0.1:$okapi" --okapi-cache 2 --event-every 5
cat > "$work/prometheus.yml" << CONFIG
global: {scrape_interval: 1s, evaluation_interval: 5s}
rule_files: [$PWD/deploy/prometheus/alerts.yaml]
scrape_configs:
  - {job_name: sidecar, static_configs: [{targets: ["127.0.0.1:$admin"], labels: {namespace: folio, pod: okapi-0}}]}
  - {job_name: okapi, static_configs: [{targets: ["127.0.0.1:$okapi"], labels: {namespace: folio, pod: okapi-0}}]}
CONFIG
start prometheus prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address="127.0.0.1:$prometheus"
check "board: Prometheus starts" until_answers "http://127.0.0.1:$prometheus/-/ready" || summary

# After a third of the time mod-authtoken is away for three seconds, and somebody empties the cache.
sleep $((seconds / 3))
kill "$auth_module"
sleep 3
stand_in
check "board: a purge by hand" curl -sSf -X DELETE -H 'Authorization: Bearer '"$secret" "http://127.0.0.1:$admin/cache"
sleep $((seconds - seconds / 3))

# The absence is to be noticed; a slow answer may be the machine's fault. Nothing else happened.
"$python/python" deploy/check_expressions.py --url "http://127.0.0.1:$prometheus" --metrics "http://127.0.0.1:$admin/metrics" \
    --may-fire AuthSidecarUpstreamErrors AuthSidecarUpstreamDown AuthSidecarUpstreamSlow
failed=$((failed + $?))
if [ -n "$picture" ]; then
    minutes=$(awk "BEGIN { print ($seconds + 3) / 60 }")
    check "board: plotted to $picture" "$python/python" deploy/grafana/plot.py --url "http://127.0.0.1:$prometheus" --minutes "$minutes" --window 10 --out "$picture" \
        --row "At a glance" --row "Two caches side by side" --row Answers --row mod-authtoken --row Revocation --row Room
fi
summary
