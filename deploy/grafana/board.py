#!/usr/bin/env python3
"""Writes okapi-auth-sidecar.json, the Grafana board, to standard output (or compares: board.py --check FILE).

The board is generated because its 40 panels differ in a title, a unit and an expression only; in the JSON that Grafana
wants these drown. Change a panel here and run: deploy/grafana/board.py > deploy/grafana/okapi-auth-sidecar.json
"""

import json
import sys

OURS = 'namespace=~"$namespace", pod=~"$pod"'
# Okapi is another pod when the sidecar is beside mod-authtoken or alone, so its series are chosen by namespace only.
OKAPI = 'namespace=~"$namespace"'
RATE = "$__rate_interval"

# "refreshed" is a call of the sidecar's own in the background: no request waited for it.
ARRIVED = 'outcome!="refreshed"'
# Requests that some cache could have answered; the rest (no token, a route of mod-authtoken's own, health) never can be.
ASKABLE = f'{ARRIVED}, reason!~"no_token|own_route|health"'
ANSWERED = 'outcome=~"hit|collapsed|stale"'

# The same colour for the same thing on every panel.
OUTCOMES = {"hit": "green", "refreshed": "blue", "collapsed": "semi-dark-green", "miss": "orange", "stale": "red", "bypass": "#808080"}
OKAPI_WORDS = {"hits": "green", "misses": "orange", "expired": "purple"}
RATIOS = {"Okapi's cache": "purple", "this cache": "green", "both together": "blue"}
STATUSES = {"202": "green", "2xx": "semi-dark-green", "3xx": "#808080", "4xx": "orange", "5xx": "red"}
REFRESHES = {"sent": "green", "suppressed": "orange"}

AUTH_PHASE = 'phase="auth"'
FILTER_CALLS = 'kind="filter"'
BYPASS = 'outcome="bypass"'
HIT = 'outcome="hit"'
TENANT = 'tenant=~"$tenant"'
TROUBLE = 'status="5xx"'
NOT_OURS = 'cause!="drained"'


def ours(metric, labels="", window=RATE):
    """rate() of one of our counters for the chosen pods."""
    return f"rate({metric}{{{OURS}{', ' + labels if labels else ''}}}[{window}])"


def okapi(metric, labels="", window=RATE):
    """rate() of one of Okapi's counters for the chosen namespaces."""
    return f"rate(org_folio_okapi_{metric}{{{OKAPI}{', ' + labels if labels else ''}}}[{window}])"


def gauge(metric):
    """One of our gauges for the chosen pods."""
    return f"{metric}{{{OURS}}}"


def process(expression):
    """The process metrics of sidecars only: other programs in the namespace export the same names."""
    return f"{expression} and on (job, instance) auth_sidecar_build_info{{{OURS}}}"


def quantile(share, metric, label, labels=""):
    return f"histogram_quantile({share}, sum by ({label}, le) ({ours(metric + '_bucket', labels)}))"


def okapi_count(kind, by="", labels=""):
    """Okapi makes a counter when it first counts; only a miss is sure to have been. Without the 0 a sum of them is empty."""
    found = f"sum{by}({okapi(f'tokenCache_{kind}_total', labels)})"
    return found if kind == "misses" else f"({found} or 0 * sum{by}({okapi('tokenCache_misses_total', labels)}))"


def okapi_ratio(by="", labels=""):
    """Okapi counts a look-up that finds an expired entry neither as a hit nor as a miss."""
    hits, misses, expired = (okapi_count(kind, by, labels) for kind in OKAPI_WORDS)
    return f"{hits} / ({hits} + {misses} + {expired})"


def calls_of_upstream():
    """Failures are told by cause, answers by status: `or` joins the two without loss."""
    return f"{ours('auth_sidecar_upstream_answers_total')} or {ours('auth_sidecar_upstream_failures_total', NOT_OURS)}"


def trouble_of_upstream():
    """Answers and non-answers that are mod-authtoken's fault; `drained` is our own shutdown."""
    return f"{ours('auth_sidecar_upstream_answers_total', TROUBLE)} or {ours('auth_sidecar_upstream_failures_total', NOT_OURS)}"


HIT_RATIO = f"sum({ours('auth_sidecar_requests_total', ANSWERED)}) / sum({ours('auth_sidecar_requests_total', ASKABLE)})"
OKAPI_RATIO = okapi_ratio()
BOTH_RATIO = (
    f"({okapi_count('hits')} + sum({ours('auth_sidecar_requests_total', ANSWERED)}))"
    f" / ({okapi_count('hits')} + sum({ours('auth_sidecar_requests_total', ASKABLE)}))"
)

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Board:
    """Panels laid out from left to right, 24 columns wide."""

    def __init__(self):
        self.panels, self.x, self.y, self.height = [], 0, 0, 0

    def row(self, title):
        self._break()
        self._add({"type": "row", "title": title, "collapsed": False, "panels": []}, 24, 1)
        self._break()

    def stat(self, title, description, expression, unit, legend="", width=3, instant=True):
        # A sum over the whole range is one value; anything else takes the last value of a curve.
        self._add(
            {
                "type": "stat", "title": title, "description": description, "datasource": DATASOURCE,
                "targets": [self._target(0, expression, legend, instant)],
                "fieldConfig": {"defaults": {"unit": unit, "color": {"mode": "fixed", "fixedColor": "text"}}, "overrides": []},
                "options": {
                    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                    "colorMode": "value", "graphMode": "none" if instant else "area", "justifyMode": "center",
                    "textMode": "value_and_name" if legend else "value", "orientation": "auto",
                },
            },
            width, 4,
        )

    def lines(self, title, description, series, unit, width=8, stack=False, bars=False, top=None, colours=None, height=8):
        custom = {
            "drawStyle": "bars" if bars else "line", "lineWidth": 1, "fillOpacity": 60 if bars else 30 if stack else 0,
            "showPoints": "never", "spanNulls": False,
            "stacking": {"mode": "normal" if stack or bars else "none", "group": "A"},
        }
        defaults = {"unit": unit, "min": 0, "custom": custom, "color": {"mode": "palette-classic"}}
        if top is not None:
            defaults["max"] = top
        self._add(
            {
                "type": "timeseries", "title": title, "description": description, "datasource": DATASOURCE,
                "targets": [self._target(i, expression, legend) for i, (expression, legend) in enumerate(series)],
                "fieldConfig": {"defaults": defaults, "overrides": self._overrides(colours or {})},
                "options": {
                    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                    "tooltip": {"mode": "multi", "sort": "desc"},
                },
            },
            width, height,
        )

    @staticmethod
    def _target(number, expression, legend, instant=False):
        return {
            "refId": chr(ord("A") + number), "datasource": DATASOURCE, "expr": expression, "legendFormat": legend or "__auto",
            "instant": instant, "range": not instant,
        }

    @staticmethod
    def _overrides(colours):
        return [
            {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
            for name, colour in colours.items()
        ]

    def _add(self, panel, width, height):
        if self.x + width > 24:
            self._break()
        self.panels.append({"id": len(self.panels) + 1, "gridPos": {"x": self.x, "y": self.y, "w": width, "h": height}, **panel})
        self.x += width
        self.height = max(self.height, height)

    def _break(self):
        self.y += self.height
        self.x = self.height = 0


def panels():
    b = Board()

    b.row("At a glance")
    b.stat("Answered here", "Share of the requests that were answered without asking mod-authtoken. Requests that no cache could answer (no token, mod-authtoken's own routes, health) are left out.", HIT_RATIO, "percentunit", instant=False)
    b.stat("Okapi's own cache", "Share of the look-ups that Okapi's token cache answered before we were asked at all. Empty when Okapi's metrics are not scraped.", OKAPI_RATIO, "percentunit", instant=False)
    b.stat("Requests", "Requests on the filter port.", f"sum({ours('auth_sidecar_requests_total', ARRIVED)})", "reqps", instant=False)
    b.stat("Calls to mod-authtoken", "Calls that went on to mod-authtoken, answered or not.", f"sum({calls_of_upstream()})", "reqps", instant=False)
    b.stat("Time saved", "Waiting time that requests were spared within the time shown, all added up.", f"sum(increase(auth_sidecar_time_saved_seconds_total{{{OURS}}}[$__range]))", "s")
    b.stat("Upstream trouble", "Share of the calls to mod-authtoken that ended in a 5xx or in no answer. No value: no trouble.", f"sum({trouble_of_upstream()}) / sum({calls_of_upstream()})", "percentunit", instant=False)
    b.stat("Revocations", "Events within the time shown that made decisions void.", f"sum(increase(auth_sidecar_revocations_total{{{OURS}}}[$__range]))", "short")
    b.stat("Sidecars by version", "More than one version is fine during a roll-out only.", f"count by (version) ({gauge('auth_sidecar_build_info')})", "short", "{{version}}")

    b.row("Two caches side by side")
    b.lines(
        "Okapi's token cache", "Look-ups in Okapi's own cache (180 s, per Okapi). In its words: an expired entry is neither a hit nor a miss, and requests without a token are not counted. All Okapis of the namespace.",
        [(f"sum({okapi(f'tokenCache_{kind}_total')})", kind) for kind in OKAPI_WORDS], "reqps", stack=True, colours=OKAPI_WORDS,
    )
    b.lines("This cache", "Requests here by outcome: what Okapi's cache did not answer, and all that is never looked up there. refreshed: renewed in the background, no request waited.", [(f"sum by (outcome) ({ours('auth_sidecar_requests_total')})", "{{outcome}}")], "reqps", stack=True, colours=OUTCOMES)
    b.lines(
        "Hit ratios", "Each cache of what reaches it; and of all that could be cached, the share that mod-authtoken was spared by both together.",
        [(OKAPI_RATIO, "Okapi's cache"), (HIT_RATIO, "this cache"), (BOTH_RATIO, "both together")], "percentunit", top=1, colours=RATIOS,
    )
    b.lines(
        "Auth calls, counted at both ends", "Okapi counts each call to an auth filter, we count each request. If Okapi's line is well above ours, calls pass the sidecar by: look for a direct entry in Okapi's discovery.",
        [(f"sum({okapi('http_client_responseTime_seconds_count', AUTH_PHASE)})", "made by Okapi"), (f"sum({ours('auth_sidecar_requests_total', ARRIVED)})", "arrived here")], "reqps", width=12,
    )
    b.lines(
        "Mean time of an auth call, seen from both ends", "Okapi's own measurement of its auth phase, our time to answer, and what mod-authtoken took when it was asked.",
        [
            (f"sum({okapi('http_client_responseTime_seconds_sum', AUTH_PHASE)}) / sum({okapi('http_client_responseTime_seconds_count', AUTH_PHASE)})", "Okapi's auth phase"),
            (f"sum({ours('auth_sidecar_answer_seconds_sum')}) / sum({ours('auth_sidecar_answer_seconds_count')})", "answered here"),
            (f"sum({ours('auth_sidecar_upstream_seconds_sum', FILTER_CALLS)}) / sum({ours('auth_sidecar_upstream_seconds_count', FILTER_CALLS)})", "mod-authtoken"),
        ], "s", width=12,
    )

    b.row("Answers")
    b.lines("Answer time, median", "From the head of the request to the head of the answer, by outcome.", [(quantile(0.5, "auth_sidecar_answer_seconds", "outcome"), "{{outcome}}")], "s", colours=OUTCOMES)
    b.lines("Answer time, 99th percentile", "One request in a hundred takes longer, by outcome.", [(quantile(0.99, "auth_sidecar_answer_seconds", "outcome"), "{{outcome}}")], "s", colours=OUTCOMES)
    b.lines("Passed through, by reason", "Requests that are never looked up. The reasons are explained in the README's list of metrics.", [(f"sum by (reason) ({ours('auth_sidecar_requests_total', BYPASS)})", "{{reason}}")], "reqps", stack=True)
    b.lines("Time saved per second", "Seconds of waiting spared in each second: 1 means that one request less is waiting for mod-authtoken at any moment.", [(f"sum({ours('auth_sidecar_time_saved_seconds_total')})", "saved")], "s")
    b.lines("Requests by pod", "A pod at zero beside busy ones: its Okapi goes past its sidecar.", [(f"sum by (pod, instance) ({ours('auth_sidecar_requests_total', ARRIVED)})", "{{pod}} {{instance}}")], "reqps")
    b.lines("Hit ratio by pod", "Each pod has a cache of its own.", [(f"sum by (pod, instance) ({ours('auth_sidecar_requests_total', ANSWERED)}) / sum by (pod, instance) ({ours('auth_sidecar_requests_total', ASKABLE)})", "{{pod}} {{instance}}")], "percentunit", top=1)

    b.row("mod-authtoken")
    b.lines(
        "Time to answer", "Filter calls take milliseconds; pass-through has the tenant upgrades in it, which take minutes.",
        [(quantile(0.5, "auth_sidecar_upstream_seconds", "kind"), "{{kind}} median"), (quantile(0.99, "auth_sidecar_upstream_seconds", "kind"), "{{kind}} 99th percentile")], "s",
    )
    b.lines("Answers by status", "202 lets a request in; 4xx is a refusal and no trouble.", [(f"sum by (status) ({ours('auth_sidecar_upstream_answers_total')})", "{{status}}")], "reqps", stack=True, colours=STATUSES)
    b.lines("Failures by cause", "Calls that got no answer. drained: given up because we were shutting down.", [(f"sum by (cause) ({ours('auth_sidecar_upstream_failures_total')})", "{{cause}}")], "reqps", bars=True)
    b.lines("In flight", "Calls waiting for an answer.", [(f"sum by (pod, instance) ({gauge('auth_sidecar_upstream_in_flight')})", "{{pod}} {{instance}}")], "short")
    b.lines("Connections", "Open connections to mod-authtoken.", [(f"sum by (pod, instance) ({gauge('auth_sidecar_upstream_connections')})", "{{pod}} {{instance}}")], "short")
    b.lines("Retries by cause", "pooled: a connection from the pool died before its answer began, asked again on a new one. connect: mod-authtoken was not up yet.", [(f"sum by (cause) ({ours('auth_sidecar_upstream_retries_total')})", "{{cause}}")], "reqps", bars=True)

    b.row("Storing")
    b.lines("Decisions stored", "Answers that were worth keeping.", [(f"sum({ours('auth_sidecar_stored_total')})", "stored")], "ops")
    b.lines("Not stored, by reason", "Answers that were passed on and forgotten. hold and revoked: something had just changed; the others: the answer did not prove itself.", [(f"sum by (reason) ({ours('auth_sidecar_not_stored_total')})", "{{reason}}")], "ops", stack=True)
    b.lines("Gone from the cache, by cause", "capacity is the one that more memory would spare.", [(f"sum by (cause) ({ours('auth_sidecar_evictions_total')})", "{{cause}}")], "ops", stack=True)

    b.row("Revocation")
    b.lines("Revocations by event", "What was seen passing by that changes somebody's rights.", [(f"sum by (event) (increase(auth_sidecar_revocations_total{{{OURS}}}[{RATE}]))", "{{event}}")], "short", bars=True)
    b.lines("Revocations by scope", "user is daily business; tenant and all make many decisions void at once.", [(f"sum by (scope) (increase(auth_sidecar_revocations_total{{{OURS}}}[{RATE}]))", "{{scope}}")], "short", bars=True)
    b.lines("Answers held back", "Delivered and not stored, because mod-authtoken may still remember what was true before the change.", [(f"sum by (kind) ({ours('auth_sidecar_held_answers_total')})", "{{kind}}")], "ops", stack=True)
    b.lines("Refreshes of mod-authtoken", "Calls that made mod-authtoken forget its memory of permissions, and such that were wanted but not allowed so soon.", [(f"sum by (result) ({ours('auth_sidecar_upstream_refreshes_total')})", "{{result}}")], "ops", colours=REFRESHES)
    b.lines("Purges by hand", "DELETE /cache on the admin port.", [(f"sum by (scope) (increase(auth_sidecar_purges_total{{{OURS}}}[{RATE}]))", "{{scope}}")], "short", bars=True)
    b.lines(
        "Readiness, loops and drains", "Sidecars that are ready, that are shutting down, and probes that came back (an upstream address is wrong).",
        [(f"sum({gauge('auth_sidecar_ready')})", "ready"), (f"sum({gauge('auth_sidecar_draining')})", "draining"), (f"sum by (probe) ({gauge('auth_sidecar_loops_detected_total')})", "loop: {{probe}}")], "short",
    )

    b.row("Room")
    b.lines("Cache size", "What the cache holds, overhead included, and what it may hold.", [(f"sum by (pod, instance) ({gauge('auth_sidecar_cache_bytes')})", "{{pod}} {{instance}}"), (f"max({gauge('auth_sidecar_cache_capacity_bytes')})", "limit")], "bytes")
    b.lines("Decisions", "Decisions stored at the moment.", [(f"sum by (pod, instance) ({gauge('auth_sidecar_cache_entries')})", "{{pod}} {{instance}}")], "short")
    b.lines("Callers and demands", "Who asks (tenant, token, user) and what for (permissions): a decision is a pair of the two.", [(f"sum({gauge('auth_sidecar_cache_callers')})", "callers"), (f"sum({gauge('auth_sidecar_cache_demands')})", "demands")], "short")

    b.row("Process")
    b.lines("Memory", "Resident memory.", [(process("process_resident_memory_bytes"), "{{pod}} {{instance}}")], "bytes", width=4)
    b.lines("CPU", "Cores in use.", [(process("rate(process_cpu_seconds_total[$__rate_interval])"), "{{pod}} {{instance}}")], "short", width=4)
    b.lines("Open files", "Connections are files: each connection of Okapi and to mod-authtoken counts.", [(process("process_open_fds"), "{{pod}} {{instance}}")], "short", width=4)
    b.lines("Open files, share of the limit", "At 100 % no connection is accepted any more.", [(process("(process_open_fds / process_max_fds)"), "{{pod}} {{instance}}")], "percentunit", width=4)
    b.lines("Connections of Okapi", "Open connections on the filter port; one Okapi opens up to 1000.", [(f"sum by (pod, instance) ({gauge('auth_sidecar_connections')})", "{{pod}} {{instance}}")], "short", width=4)
    b.lines("Restarts within an hour", "Each one empties a cache.", [(process("changes(process_start_time_seconds[1h])"), "{{pod}} {{instance}}")], "short", width=4)

    b.row("Tenants ($tenant)")
    b.lines("Requests by tenant", "Hits and misses together. Tenants beyond AUTH_SIDECAR_METRICS_TENANTS share the name other.", [(f"sum by (tenant) ({ours('auth_sidecar_tenant_requests_total', TENANT)})", "{{tenant}}")], "reqps", stack=True)
    b.lines("Hit ratio by tenant", "A tenant whose rights change all the time has a low one.", [(f"sum by (tenant) ({ours('auth_sidecar_tenant_requests_total', f'{TENANT}, {HIT}')}) / sum by (tenant) ({ours('auth_sidecar_tenant_requests_total', TENANT)})", "{{tenant}}")], "percentunit", top=1)
    b.lines("Okapi's hit ratio by tenant", "The same of Okapi's own cache.", [(okapi_ratio(" by (tenant) ", TENANT), "{{tenant}}")], "percentunit", top=1)
    return b.panels


def variable(name, label, query):
    return {
        "type": "query", "name": name, "label": label, "datasource": DATASOURCE,
        "query": {"query": query, "refId": f"variable-{name}"}, "refresh": 2, "sort": 1, "regex": "", "hide": 0,
        # ".*" and not a list of the values: outside Kubernetes the labels are missing, and only ".*" matches that.
        "multi": True, "includeAll": True, "allValue": ".*", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "options": [],
    }


def board():
    return {
        "uid": "okapi-auth-sidecar", "title": "Okapi auth sidecar", "tags": ["folio", "okapi"], "schemaVersion": 39, "version": 1,
        "description": "The decision cache in front of mod-authtoken, beside Okapi's own token cache. Generated by board.py.",
        "editable": True, "graphTooltip": 1, "refresh": "30s", "timezone": "browser", "time": {"from": "now-1h", "to": "now"},
        "annotations": {
            "list": [
                {
                    "name": "Alerts", "datasource": DATASOURCE, "enable": True, "iconColor": "red",
                    "expr": 'ALERTS{alertname=~"AuthSidecar.*", alertstate="firing"}', "titleFormat": "{{alertname}}", "textFormat": "{{pod}} {{instance}}",
                }
            ]
        },
        "templating": {
            "list": [
                {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1, "regex": "", "hide": 0, "multi": False, "includeAll": False, "current": {}, "options": []},
                variable("namespace", "Namespace", "label_values(auth_sidecar_build_info, namespace)"),
                variable("pod", "Pod", 'label_values(auth_sidecar_build_info{namespace=~"$namespace"}, pod)'),
                variable("tenant", "Tenant", 'label_values(auth_sidecar_tenant_requests_total{namespace=~"$namespace"}, tenant)'),
            ]
        },
        "panels": panels(),
    }


def main():
    text = json.dumps(board(), indent=1, ensure_ascii=False) + "\n"
    if sys.argv[1:2] == ["--check"]:
        with open(sys.argv[2], encoding="utf-8") as file:
            if file.read() != text:
                sys.exit(f"{sys.argv[2]} is not what board.py writes; run board.py > {sys.argv[2]}")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
