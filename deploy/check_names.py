#!/usr/bin/env python3
"""Checks that what the documentation tells people to type or to look for is there.

    deploy/check_names.py        every Markdown file of the repository

Containers, objects, Services, ports and values against the committed renderings of the chart (which .ci/kube.sh keeps up to
date) and its values.yaml; systemd units against deploy/systemd; settings against the program's source; metrics, their
labels and what a `grep` for them finds against the committed exposition; alerts against their rules.
Needs Python's PyYAML and promql-parser. Prints one line per check; exit code 1 when one failed.
"""

import pathlib
import re
import subprocess
import sys

import yaml

from check_expressions import HERE, OPEN_LABELS, Failures, read_exposition, report

ROOT = HERE.parent
CHART = ROOT / "helm/okapi-auth-sidecar"
# Other people's objects and ports that the texts have to name.
FOREIGN = {"okapi": "Okapi", "mod-authtoken": "mod-authtoken"}
FOREIGN_PORTS = {9130: "Okapi", 9930: "Okapi's metrics", 19130: "a port-forward to Okapi", 8081: "mod-authtoken", 9090: "Prometheus", 3000: "Grafana"}
OBJECT = re.compile(
    r"\b(?:deployments?|statefulsets?|services?|svc|endpoints|configmaps?|jobs?|serviceaccounts?|networkpolic(?:y|ies)|poddisruptionbudgets?|pdb)"
    r"[/ ]([a-z][a-z0-9.-]*)"
)


class Text:
    """A file's lines, each with where it is."""

    def __init__(self, name, text):
        self.lines = [(f"{name}:{number}", line) for number, line in enumerate(text.splitlines(), start=1)]

    def found(self, pattern, only=lambda line: True):
        """Where, and what the pattern's groups matched."""
        return [(where, match) for where, line in self.lines if only(line) for match in re.finditer(pattern, line)]


# ---- what there is ----


class Rendered:
    """What the chart makes: names of objects by kind, of the container that serves, ports."""

    def __init__(self, texts):
        self.objects, self.services, self.containers, self.ports = set(), {}, set(), set()
        for text in texts:
            for document in yaml.safe_load_all(text):
                self._document(document or {})

    def _document(self, document):
        name = document.get("metadata", {}).get("name")
        if name:
            self.objects.add(name)
        if document.get("kind") == "Service":
            self.services[name] = {port["port"] for port in document["spec"]["ports"]}
        self._walk(document)
        # A patch for other people's pods comes as text.
        for key, value in (document.get("data") or {}).items():
            if key.endswith(".yaml"):
                self._walk(yaml.safe_load(value))

    def _walk(self, part):
        if isinstance(part, dict):
            ports = part.get("ports") or []
            if "image" in part and any("containerPort" in port for port in ports):
                self.containers.add(part["name"])
                self.ports |= {port["containerPort"] for port in ports}
            part = list(part.values())
        if isinstance(part, list):
            for item in part:
                self._walk(item)


def settings(config, arguments):
    """The environment names that the program knows, from its source."""
    table = config.partition("pub const SETTINGS")[2].partition("];\n")[0]
    names = {f"AUTH_SIDECAR_{name}" for name in re.findall(r'\(\s*"([A-Z_]+)",', table)}
    of_register = set(re.findall(r'"(AUTH_SIDECAR_[A-Z_]+)"', arguments.partition("ENV_NAMES")[2].partition("];\n")[0]))
    if len(names) < 20 or len(of_register) < 10:
        raise ValueError("the program's settings could not be read")
    return names | of_register


def alternatives(pattern):
    """A regular expression without groups for each way to match this one's groups of alternatives."""
    group = re.search(r"(?<!\\)\(([^()]*)\)", pattern)
    if group is None:
        return pattern.split("|")
    ways = [pattern[: group.start()] + way + pattern[group.end() :] for way in group[1].split("|")]
    return [one for way in ways for one in alternatives(way)]


# ---- the checks ----


def check_containers(texts, rendered):
    """`-c NAME` of kubectl, and the variable that stands for it."""
    failures = Failures()
    for text in texts:
        named = text.found(r"(?:\s-c|--container)[ =]\"?([a-z][\w-]*)", lambda line: "kubectl" in line) + text.found(r"^C=\"?([\w-]+)")
        failures += [f"{where}: no container is called {name[1]}" for where, name in named if name[1] not in rendered.containers]
    return failures


def check_objects(texts, rendered):
    """What kubectl is to do something with."""
    known = rendered.objects | FOREIGN.keys()
    return Failures(
        f"{where}: the chart makes no {name[0]}"
        for text in texts for where, name in text.found(OBJECT, lambda line: "kubectl" in line) if name[1].rstrip(".-") not in known
    )


def check_addresses(texts, rendered):
    """Ports are the chart's or well-known, hosts that are called after us are Services."""
    failures = Failures()
    ports = rendered.ports | FOREIGN_PORTS.keys() | {port for of_service in rendered.services.values() for port in of_service}
    for text in texts:
        for where, url in text.found(r"https?://([a-zA-Z0-9.-]+)(?::(\d+))?"):
            host = url[1].partition(".")[0]
            if "sidecar" in host and host not in rendered.services:
                failures.append(f"{where}: no Service is called {host}")
            elif url[2] and host in rendered.services and int(url[2]) not in rendered.services[host]:
                failures.append(f"{where}: the Service {host} has no port {url[2]}")
        for where, port in text.found(r"(?::|\bport )(\d{4,5})\b(?![.-])"):
            if int(port[1]) not in ports:
                failures.append(f"{where}: nobody listens on {port[1]}")
    return failures


def check_units(texts, units):
    """systemd units, and the files that they read."""
    failures = Failures()
    for text in texts:
        for where, name in text.found(r"(?:journalctl -u|systemctl [a-z-]+|systemd-analyze security) ([a-z][\w-]*)"):
            if name[1] not in units:
                failures.append(f"{where}: no unit is called {name[1]}")
        for where, path in text.found(r"/etc/okapi-auth-sidecar/[\w./-]*\w"):
            if not any(path[0] in unit for unit in units.values()):
                failures.append(f"{where}: no unit knows {path[0]}")
    return failures


def check_values(texts, values):
    """Values of the chart: `a.b.c` in backticks or after --set, where `a` is one of its keys."""
    failures = Failures()
    for text in texts:
        for where, path in text.found(r"(?:`|--set |--set-string )([a-zA-Z]+(?:\.[a-zA-Z]+)+)[`=]"):
            keys, part = path[1].split("."), values
            for key in keys if keys[0] in values and keys[-1] != "yaml" else []:
                if not isinstance(part, dict) or (part and key not in part):
                    failures.append(f"{where}: the chart has no value {path[1]}")
                    break
                part = part.get(key, {})
    return failures


def check_settings(texts, known):
    """Environment names."""
    return Failures(
        f"{where}: the program has no setting {name[0]}"
        for text in texts for where, name in text.found(r"AUTH_SIDECAR_[A-Z][A-Z_]*") if name[0] not in known
    )


def check_metrics(texts, exposition):
    """Names, `name{label="value"}` with or without our prefix, and what greps look for."""
    failures = Failures()
    exposed = read_exposition([exposition])
    samples = [line for line in exposition.splitlines() if line and not line.startswith("#")]
    names = exposed.keys() | {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed}
    for text in texts:
        for where, line in text.lines:
            for grep in re.finditer(r"grep (?:-\w+ )?'([^']*(?:auth_sidecar|process)_[^']*)'", line):
                for way in alternatives(grep[1]):
                    if not any(re.search(way, sample) for sample in samples):
                        failures.append(f"{where}: grep finds nothing for {way}")
                line = line.replace(grep[0], "")
            for name in re.findall(r"\bauth_sidecar_[a-z][a-z0-9_]*", line):
                if name not in names:
                    failures.append(f"{where}: {name} is not exposed")
            for name, label, value in re.findall(r'\b([a-z][a-z0-9_]*)\{([a-z_]+)="([^"]*)"\}', line):
                values = exposed.get(name, exposed.get(f"auth_sidecar_{name}", {})).get(label, set())
                if value not in values and (label not in OPEN_LABELS or not values):
                    failures.append(f"{where}: there is no {name} with {label}={value!r}")
    return failures


def check_table(readme, exposition):
    """The README's table of metrics: it has every one with its labels, and no other."""
    exposed = {}
    for name, labels in read_exposition([exposition]).items():
        if name.startswith("auth_sidecar_"):
            family = re.sub(r"_(bucket|sum|count)$", "", name.removeprefix("auth_sidecar_"))
            exposed.setdefault(family, set()).update(labels.keys() - {"le"})
    table = readme.partition("| metric (`auth_sidecar_…`)")[2].partition("\n\n")[0]
    told = {}
    for cell in re.findall(r"^\| (.*?) \|", table, re.MULTILINE):
        for name, labels in re.findall(r"`([a-z_]+)(?:\{([a-z_,]*)\})?`", cell):
            told[name] = set(labels.split(",")) - {""}
    return Failures(
        [f"README.md: the table of metrics lacks {name}" for name in sorted(exposed.keys() - told.keys())]
        + [f"README.md: {name} is not exposed" for name in sorted(told.keys() - exposed.keys())]
        + [f"README.md: the labels of {name} are {sorted(exposed[name])}" for name in sorted(told.keys() & exposed.keys()) if told[name] != exposed[name]]
    )


def check_alerts(texts, rules):
    """Names of alerts."""
    known = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    return Failures(
        f"{where}: no alert is called {name[0]}"
        for text in texts for where, name in text.found(r"\bAuthSidecar[A-Z]\w*") if name[0] not in known
    )


def main():
    """All checks over all texts."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = [Text(name, (ROOT / name).read_text()) for name in listed.split("\0") if name]
    rendered = Rendered((CHART / f"ci/rendered/{name}.yaml").read_text() for name in ("default", "okapi-native", "registration"))
    units = {path.stem: path.read_text() for path in (HERE / "systemd").glob("*.service")}
    exposition = (HERE / "prometheus/exposition.txt").read_text()
    known = settings((ROOT / "src/config/mod.rs").read_text(), (ROOT / "src/register/args.rs").read_text())
    rules = yaml.safe_load((HERE / "prometheus/alerts.yaml").read_text())
    good = [
        report(f"{len(texts)} texts: {title}", failures)
        for title, failures in (
            ("containers are the chart's", check_containers(texts, rendered)),
            ("objects are the chart's", check_objects(texts, rendered)),
            ("Services and ports are the chart's", check_addresses(texts, rendered)),
            ("systemd units are there", check_units(texts, units)),
            ("values are the chart's", check_values(texts, yaml.safe_load((CHART / "values.yaml").read_text()))),
            ("settings are the program's", check_settings(texts, known)),
            ("metrics are exposed, and greps find them", check_metrics(texts, exposition)),
            ("the table of metrics is whole", check_table((ROOT / "README.md").read_text(), exposition)),
            ("alerts are there", check_alerts(texts, rules)),
        )
    ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
