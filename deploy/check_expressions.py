#!/usr/bin/env python3
"""Checks the board and the alerts against what is really exposed.

    deploy/check_expressions.py                      syntax, names, labels, values, against deploy/prometheus/exposition*.txt
    deploy/check_expressions.py --url http://127.0.0.1:9090 [--metrics http://127.0.0.1:8072/metrics]
                                                     the same, and against a Prometheus that has scraped a running sidecar
    deploy/check_expressions.py --update --metrics http://127.0.0.1:8072/metrics
                                                     writes exposition.txt anew, from a sidecar that has just started

Every expression (panels, annotations, variables, alerts) must be valid PromQL for promtool; every metric it names must be
exposed, every label it names must be a label of that metric, every value it compares a closed label with must be a value of
that label (a typing error there gives an empty panel and no message). With --url the running sidecar's metrics and the
committed exposition must be the same, and every query must be answered.
Needs promtool, and Python's PyYAML and promql-parser. Prints one line per check; exit code 1 when one failed.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import promql_parser as promql
import yaml

HERE = pathlib.Path(__file__).resolve().parent
# Put on every series by the scrape, not by the program.
TARGET_LABELS = {"namespace", "pod", "job", "instance"}
# Labels with values that nobody can list beforehand.
OPEN_LABELS = TARGET_LABELS | {"tenant", "version", "le", "url", "method", "module", "code", "userId", "alertname", "alertstate"}
# Made by Prometheus itself.
BUILT_IN = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$__interval": "1m"}
SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Failures(list):
    """What went wrong, in words; empty when a check passed."""


# ---- what is exposed ----


class Exposed(dict):
    """Metric name (as a query names it) -> label name -> set of values."""

    def add(self, name, labels):
        known = self.setdefault(name, {})
        for label, value in labels.items():
            known.setdefault(label, set()).add(value)


def read_exposition(texts):
    """The samples of Prometheus' text format."""
    exposed = Exposed()
    for text in texts:
        for line in text.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            sample = SAMPLE.match(line)
            if sample is None:
                raise ValueError(f"not a sample: {line}")
            exposed.add(sample[1], dict(LABEL.findall(sample[2] or "")))
    return exposed


def tidy(text):
    """An exposition whose order and figures do not change from run to run: families and samples sorted, values 0."""
    families = []
    for line in text.splitlines():
        if line.startswith("# HELP"):
            families.append([line])
        elif line:
            families[-1].append(line if line.startswith("#") else line.rsplit(" ", 1)[0] + " 0")

    def place(sample):
        # Buckets by their bound, then sum and count.
        bound = re.search(r'le="([^"]*)"', sample)
        return re.sub(r',?le="[^"]*"', "", sample), float(bound[1]) if bound else 0.0

    ordered = sorted(families, key=lambda family: family[0])
    return "\n\n".join("\n".join(family[:2] + sorted(family[2:], key=place)) for family in ordered) + "\n"


def ask(url, path, **arguments):
    """One call of Prometheus' HTTP API; returns its data."""
    query = urllib.parse.urlencode(arguments, doseq=True)
    request = urllib.request.Request(f"{url}/api/v1/{path}?{query}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        body = json.load(answer)
    if body["status"] != "success":
        raise ValueError(body.get("error", body["status"]))
    return body["data"]


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def read_live(url):
    """Every series of ours that the Prometheus at url has seen within the last hour."""
    exposed = Exposed()
    now = time.time()
    for series in ask(url, "series", **{"match[]": '{__name__=~"auth_sidecar_.+"}', "start": now - 3600, "end": now}):
        exposed.add(series["__name__"], without_target(series))
    # Other programs have metrics of these names too, so only those of a sidecar's own target.
    for row in ask(url, "query", query='{__name__=~"process_.+"} and on (job, instance) auth_sidecar_build_info')["result"]:
        exposed.add(row["metric"]["__name__"], without_target(row["metric"]))
    return exposed


def without_target(series):
    return {label: value for label, value in series.items() if label not in TARGET_LABELS | {"__name__"}}


# ---- what is asked ----


def expressions_of_board(board):
    """(where, expression) of everything on the board that is sent to Prometheus."""
    found = []
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            found.append((f"panel {panel['title']!r} {target['refId']}", target["expr"]))
    for annotation in board["annotations"]["list"]:
        found.append((f"annotation {annotation['name']!r}", annotation["expr"]))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            inside = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            if inside is None:
                raise ValueError(f"variable {variable['name']}: only label_values(metric, label) is understood")
            found.append((f"variable {variable['name']!r}", f"count by ({inside[2]}) ({inside[1]})"))
    return found


def expressions_of_rules(rules):
    """(where, expression) of every alert."""
    return [(f"alert {rule['alert']}", rule["expr"]) for group in rules["groups"] for rule in group["rules"]]


def fill_in(expression, names):
    """Puts something valid where Grafana would put a variable's value."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    for name in sorted(names, key=len, reverse=True):
        expression = expression.replace(f"${name}", ".*")
    return expression


def selectors(tree):
    """All vector selectors below a node of the syntax tree."""
    found = []

    def visit(node):
        if isinstance(node, promql.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql.VectorSelector):
            found.append(node)
        return True

    walk(tree, visit)
    return found


def walk(node, visit):
    """Calls visit for node and all below it."""
    visit(node)
    for attribute in ("expr", "lhs", "rhs", "param"):
        below = getattr(node, attribute, None)
        if isinstance(below, promql.Expr):
            walk(below, visit)
    for argument in getattr(node, "args", None) or []:
        walk(argument, visit)


# ---- the checks ----


def check_syntax(expressions):
    """promtool has the last word on what is PromQL."""
    failures = Failures()
    rules = [{"record": f"checked:{number}", "expr": expression} for number, (_, expression) in enumerate(expressions)]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "rules.yaml")
        path.write_text(yaml.safe_dump({"groups": [{"name": "checked", "rules": rules}]}))
        run = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        for line in (run.stdout + run.stderr).splitlines():
            number = re.search(r"checked:(\d+)", line)
            if number:
                failures.append(f"{expressions[int(number[1])][0]}: {line.strip()}")
        if not failures:
            failures.append(run.stdout + run.stderr)
    return failures


def check_names(expressions, exposed):
    """Every metric, label and label value that is named exists."""
    failures = Failures()
    for where, expression in expressions:
        try:
            tree = promql.parse(expression)
        except ValueError as error:
            failures.append(f"{where}: {error}")
            continue
        for selector in selectors(tree):
            failures += [f"{where}: {text}" for text in wrong_selector(selector, exposed)]
        walk(tree, lambda node, where=where: failures.extend(f"{where}: {text}" for text in wrong_grouping(node, exposed)))
    return failures


def labels_of(name, exposed):
    """Label -> values of a metric, None for a metric that is not exposed."""
    if name in BUILT_IN:
        return {label: set() for label in BUILT_IN[name]}
    return exposed.get(name)


def wrong_selector(selector, exposed):
    labels = labels_of(selector.name, exposed)
    if labels is None:
        yield f"{selector.name} is not exposed"
        return
    for matcher in selector.matchers.matchers:
        if matcher.name not in labels and matcher.name not in TARGET_LABELS:
            yield f"{selector.name} has no label {matcher.name}"
        elif matcher.name not in OPEN_LABELS:
            for value in matcher.value.split("|"):
                if re.fullmatch(r"[\w ]+", value) and value not in labels[matcher.name]:
                    yield f"{selector.name}: {matcher.name} is never {value!r}"


def wrong_grouping(node, exposed):
    """Labels in by, without, on and ignoring must be labels of something below."""
    if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
        sides, names = [node.expr], node.modifier.labels
    elif isinstance(node, promql.BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
        sides, names = [node.lhs, node.rhs], node.modifier.matching.labels
    else:
        return
    for side in sides:
        known = set(TARGET_LABELS)
        for selector in selectors(side):
            known |= set(labels_of(selector.name, exposed) or {})
        for name in names:
            if name not in known:
                yield f"nothing below has the label {name} to group by"


def check_all_shown(expressions, exposed):
    """A metric that nobody ever looks at should not be exposed, or is missing on the board."""
    shown = {selector.name for _, expression in expressions for selector in selectors(promql.parse(expression))}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} | shown
    return Failures(
        f"{name} is on no panel" for name in sorted(exposed)
        if name.startswith("auth_sidecar_") and name not in families and re.sub(r"_(bucket|sum|count)$", "", name) not in families
    )


def check_alerts(rules, tests, runbook):
    """Each alert has what the one who is woken needs, and a test in which it fires."""
    failures = Failures()
    anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", runbook, re.MULTILINE)}
    fired = {case["alertname"] for test in tests["tests"] for case in test.get("alert_rule_test", []) if case.get("exp_alerts")}
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    failures += [f"{name} twice" for name in set(names) if names.count(name) > 1]
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        name, notes = rule["alert"], rule.get("annotations", {})
        failures += [f"{name}: no {key}" for key in ("summary", "description", "runbook_url") if not notes.get(key)]
        if rule.get("labels", {}).get("severity") not in ("critical", "warning", "info"):
            failures.append(f"{name}: severity must be critical, warning or info")
        path, _, anchor = notes.get("runbook_url", "").partition("#")
        if path != "deploy/runbooks/alerts.md" or anchor not in anchors:
            failures.append(f"{name}: runbook_url {notes.get('runbook_url')} is no heading of the runbook")
        if name not in fired:
            failures.append(f"{name}: no test in which it fires")
    return failures


def check_same(committed, live):
    """The committed exposition and the running program's are the same: names, labels, values of closed labels."""
    failures = Failures()
    ours = {name: labels for name, labels in committed.items() if not name.startswith("org_folio_")}
    failures += [f"{name} is in exposition.txt, and the sidecar does not expose it" for name in sorted(ours.keys() - live.keys())]
    failures += [f"{name} is exposed, and exposition.txt does not have it" for name in sorted(live.keys() - ours.keys())]
    for name in sorted(ours.keys() & live.keys()):
        for label in sorted(ours[name].keys() ^ live[name].keys()):
            failures.append(f"{name}: label {label} is only {'in exposition.txt' if label in ours[name] else 'exposed'}")
        for label in sorted((ours[name].keys() & live[name].keys()) - OPEN_LABELS):
            for value in sorted(ours[name][label] ^ live[name][label]):
                failures.append(f"{name}: {label}={value!r} is only {'in exposition.txt' if value in ours[name][label] else 'exposed'}")
    return failures


def check_answers(url, expressions):
    """A running Prometheus answers every query; returns the failures, and where the answer was empty."""
    failures, empty = Failures(), []
    for where, expression in expressions:
        try:
            if not ask(url, "query", query=expression)["result"]:
                empty.append(where)
        except (OSError, ValueError) as error:
            failures.append(f"{where}: {error}")
    return failures, empty


def check_metrics(text):
    """promtool's lint of an exposition: HELP and TYPE, suffixes, units."""
    run = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return Failures([] if run.returncode == 0 else (run.stdout + run.stderr).splitlines())


def check_board_types(board):
    """Grafana's own types take every key of the board: what is lost on the way is misspelt or in the wrong place."""
    try:
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import Dashboard
    except ImportError:
        return None
    # Only the Prometheus data source knows these two keys of an annotation.
    apart = {"titleFormat", "textFormat"}

    def lost(before, after, path):
        if isinstance(before, dict):
            for key, value in before.items():
                if key in apart:
                    continue
                if not isinstance(after, dict) or key not in after:
                    yield f"{path}/{key} is unknown to Grafana"
                else:
                    yield from lost(value, after[key], f"{path}/{key}")
        elif isinstance(before, list):
            if not isinstance(after, list) or len(before) != len(after):
                yield f"{path} is no list for Grafana"
            else:
                for number, (one, other) in enumerate(zip(before, after)):
                    yield from lost(one, other, f"{path}/{number}")
        elif before != after:
            yield f"{path} becomes {after!r}"

    return Failures(lost(board, json.loads(JSONEncoder().encode(Dashboard.from_json(board))), ""))


# ---- run ----


def report(title, failures):
    """One line; the failures below it."""
    if failures is None:
        print(f"NOT RUN: {title}")
        return True
    print(f"{'ok' if not failures else 'FAILED'}: {title}")
    for failure in failures:
        print(f"    {failure}")
    return not failures


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--folder", type=pathlib.Path, default=HERE, help="the deploy folder")
    arguments.add_argument("--url", help="a Prometheus that has scraped a running sidecar")
    arguments.add_argument("--metrics", help="the running sidecar's own /metrics, for promtool's lint")
    arguments.add_argument("--may-fire", nargs="+", metavar="ALERT", help="with --url: fail when another alert's condition is true")
    arguments.add_argument("--update", action="store_true", help="write exposition.txt from --metrics and end")
    given = arguments.parse_args()
    if given.update:
        if not given.metrics:
            arguments.error("--update needs --metrics")
        (given.folder / "prometheus/exposition.txt").write_text(tidy(fetch(given.metrics)))
        return

    board = json.loads((given.folder / "grafana/okapi-auth-sidecar.json").read_text())
    rules = yaml.safe_load((given.folder / "prometheus/alerts.yaml").read_text())
    tests = yaml.safe_load((given.folder / "prometheus/alerts_test.yaml").read_text())
    runbook = (given.folder / "runbooks/alerts.md").read_text()
    own_text = (given.folder / "prometheus/exposition.txt").read_text()
    committed = read_exposition([own_text, (given.folder / "prometheus/exposition-okapi.txt").read_text()])

    names = [variable["name"] for variable in board["templating"]["list"]]
    of_board = [(where, fill_in(expression, names)) for where, expression in expressions_of_board(board)]
    expressions = of_board + expressions_of_rules(rules)
    unfilled = Failures(f"{where}: {expression}" for where, expression in expressions if "$" in expression)

    good = [
        report(f"{len(expressions)} expressions: every variable of the board is defined", unfilled),
        report(f"{len(expressions)} expressions: PromQL syntax (promtool)", check_syntax(expressions)),
        report(f"{len(expressions)} expressions: metrics, labels and values exist", check_names(expressions, committed)),
        report("every metric of the sidecar is on the board", check_all_shown(of_board, committed)),
        report("the board fits Grafana's types (grafana-foundation-sdk)", check_board_types(board)),
        report("alerts: severity, texts, runbook, a test that fires", check_alerts(rules, tests, runbook)),
        report("exposition.txt: promtool check metrics", check_metrics(own_text)),
    ]
    if given.url:
        good.append(report(f"{given.url}: the running sidecar exposes what exposition.txt says", check_same(committed, read_live(given.url))))
        failures, empty = check_answers(given.url, expressions)
        good.append(report(f"{given.url}: answers all {len(expressions)} queries, {len(expressions) - len(empty)} with data", failures))
        for where, _ in of_board:
            if where in empty:
                print(f"    no data: {where}")
        true_now = [where.removeprefix("alert ") for where, _ in expressions_of_rules(rules) if where not in empty]
        print(f"    conditions that are true now: {', '.join(true_now) or 'none'}")
        if given.may_fire is not None:
            unexpected = Failures(f"{name}: its condition is true" for name in true_now if name not in given.may_fire)
            good.append(report(f"{given.url}: no alert has cause but {', '.join(given.may_fire)}", unexpected))
    if given.metrics:
        good.append(report(f"{given.metrics}: promtool check metrics", check_metrics(fetch(given.metrics))))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
