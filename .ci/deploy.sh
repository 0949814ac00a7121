#!/usr/bin/env bash
# Checks what is in deploy/, offline once its tools are installed. One line per check.
# Exit code: 0 all good, 1 a check failed, 3 nothing failed but something could not be run (each such thing: "NOT RUN: ...").
# SIDECAR_BIN names the program for the checks that need it; without it: target/debug/okapi-auth-sidecar.
# shellcheck disable=SC2317 # the functions are called through check
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. .ci/checks.sh

work=$(mktemp -d)
started=()
finish() {
    for pid in "${started[@]:-}"; do [ -n "$pid" ] && kill "$pid" 2> /dev/null; done
    rm -rf "$work"
}
trap finish EXIT

need_packages prometheus shellcheck
need_python || { not_run "everything: the Python environment of .ci/requirements.txt cannot be made"; summary; }
has() { command -v "$1" > /dev/null; }

# ---- alerts and board ----
if has promtool; then
    check "alerts: promtool check rules" promtool check rules deploy/prometheus/alerts.yaml
    check "alerts: promtool test rules" promtool test rules deploy/prometheus/alerts_test.yaml
    check "board: is what board.py writes" "$python/python" deploy/grafana/board.py --check deploy/grafana/okapi-auth-sidecar.json
    check "expressions: the checker finds what it should" "$python/python" -m unittest deploy/test_check_expressions.py
    "$python/python" deploy/check_expressions.py
    failed=$((failed + $?))
    check "compose: Prometheus configuration" promtool check config --syntax-only deploy/compose/prometheus/prometheus.yml
else
    not_run "alerts, board: promtool (package prometheus) is not installed"
fi

# ---- the same against a real Prometheus, which scrapes the committed exposition ----
if has prometheus; then
    exposition=$(free_port) prometheus=$(free_port)
    mkdir "$work/www"
    cp deploy/prometheus/exposition.txt "$work/www/metrics"
    "$python/python" -m http.server --bind 127.0.0.1 --directory "$work/www" "$exposition" > /dev/null 2>&1 &
    started+=($!)
    cat > "$work/prometheus.yml" << CONFIG
global: {scrape_interval: 1s}
scrape_configs: [{job_name: sidecar, static_configs: [{targets: ["127.0.0.1:$exposition"]}]}]
CONFIG
    prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address="127.0.0.1:$prometheus" > "$work/log" 2>&1 &
    started+=($!)
    scraped() {
        for _ in $(seq 60); do
            curl -sS "http://127.0.0.1:$prometheus/api/v1/query?query=count_over_time(auth_sidecar_build_info\[1m\])%3E2" 2> /dev/null | grep -q '"value"' && return
            sleep 0.5
        done
        tail -n 5 "$work/log"
        return 1
    }
    if check "expressions: a real Prometheus scrapes the exposition" scraped; then
        check "expressions: and answers every one of them" "$python/python" deploy/check_expressions.py --url "http://127.0.0.1:$prometheus"
    fi
else
    not_run "expressions on a real Prometheus: not installed"
fi

# ---- names in runbooks and other texts ----
check "names: the checker finds what it should" "$python/python" -m unittest deploy/test_check_names.py
"$python/python" deploy/check_names.py
failed=$((failed + $?))

# ---- compose ----
compose=deploy/compose/docker-compose.yml
for profile in demo folio; do
    check "compose: docker-compose config, profile $profile" env COMPOSE_PROFILES=$profile "$python/docker-compose" -f $compose config -q
done
check "compose: schema of the Compose specification" "$python/check-jsonschema" --builtin-schema vendor.compose-spec $compose
check "compose: Dockerfile.standin: hadolint" "$python/hadolint" deploy/compose/Dockerfile.standin
parses() { "$python/python" -c 'import sys, yaml; [yaml.safe_load(open(name)) for name in sys.argv[1:]]' deploy/compose/grafana/provisioning/*/*.yaml; }
check "compose: Grafana's provisioning is YAML" parses
cannot_run "compose: Grafana itself (in no registry that is used here); the board is checked by Grafana's types, and plotted by deploy/grafana/plot.py"
cannot_run "compose: profile folio (FOLIO's images are in no registry that is used here)"

# ---- systemd ----
if has systemd-analyze; then
    # The program need not be installed for the unit to be right.
    sed 's#^ExecStart=.*#ExecStart=/bin/true#' deploy/systemd/okapi-auth-sidecar.service > "$work/okapi-auth-sidecar.service"
    verified() { ! systemd-analyze verify "$work/okapi-auth-sidecar.service" 2>&1 | grep .; }
    check "systemd: unit verifies without a word" verified
    check "systemd: exposure below 2.0" systemd-analyze security --offline=true --no-pager --threshold=20 deploy/systemd/okapi-auth-sidecar.service
else
    not_run "systemd: systemd-analyze is not installed"
fi
[ -d /run/systemd/system ] || cannot_run "systemd: the unit under a running systemd (this machine has none)"

# ---- settings that are named here, by the program itself ----
program=${SIDECAR_BIN:-target/debug/okapi-auth-sidecar}
accepts() { env -i "$@" "$program" check; }
of_compose() {
    COMPOSE_PROFILES=$1 "$python/docker-compose" -f $compose config --format json | jq -r --arg name "$2" '.services[$name].environment | to_entries[] | "\(.key)=\(.value)"'
}
# A program that accepts what is no setting says nothing about settings.
if [ -x "$program" ] && ! accepts AUTH_SIDECAR_UPSTREAM_URL=http://127.0.0.1:1 AUTH_SIDECAR_NO_SUCH=1 > /dev/null 2>&1; then
    mapfile -t settings < <(grep -v '^#' deploy/systemd/okapi-auth-sidecar.env | grep .)
    check "systemd: the program accepts the settings of okapi-auth-sidecar.env" accepts "${settings[@]}"
    for pair in demo:sidecar-demo folio:sidecar; do
        mapfile -t settings < <(of_compose "${pair%:*}" "${pair#*:}")
        check "compose: the program accepts the settings of ${pair#*:}" accepts "${settings[@]}"
    done
else
    not_run "settings in compose and systemd: $program is not there or checks nothing"
fi

# ---- scripts ----
if has shellcheck; then
    mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh')
    check "scripts: shellcheck of ${#scripts[@]}" shellcheck -x -S warning "${scripts[@]}"
    # What a runbook tells to type must at least be shell. Variables are set in the block before.
    runbook() {
        "$python/python" - "$work" << 'PYTHON'
import pathlib, re, sys
for number, block in enumerate(re.findall(r"```sh\n(.*?)```", pathlib.Path("deploy/runbooks/alerts.md").read_text(), re.DOTALL)):
    pathlib.Path(sys.argv[1], f"runbook-{number}.bash").write_text(block)
PYTHON
        shellcheck --shell=bash --exclude=SC2034,SC2154 "$work"/runbook-*.bash
    }
    check "scripts: shellcheck of the runbook's commands" runbook
else
    not_run "scripts: shellcheck is not installed"
fi
check "scripts: the Python of deploy/ compiles" "$python/python" -W error -m py_compile deploy/*.py deploy/*/*.py .ci/*.py
summary
