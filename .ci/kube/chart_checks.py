"""Checks of the two charts: consistency, rendering, what the renderings mean, what is refused."""

import json
import os
import pathlib
import re
import subprocess

import jsonschema
import yaml

import charts
import generated
import pods
import validate
from report import none, same

CI = charts.CHART / "ci"
# Objects of the schema that must take keys we do not know: other charts' globals, the library's own values, and parts of
# Kubernetes' API, which Kubernetes itself checks.
OPEN = {"global", "auth-sidecar-lib"}


def values_files():
    """The matrix of values."""
    return sorted(CI.glob("*-values.yaml"))


def versions_agree():
    """One version for program, charts, default tag and everything that is shipped beside them."""
    chart, library = (charts.load(folder / "Chart.yaml") for folder in (charts.CHART, charts.LIBRARY))
    manifest = (charts.ROOT / "Cargo.toml").read_text()
    program = re.search(r'^version = "([^"]+)"', manifest, re.MULTILINE).group(1)
    image = (charts.LIBRARY / "templates/_image.tpl").read_text()
    same(chart["appVersion"], program, "the chart's appVersion")
    same(library["appVersion"], program, "the library's appVersion")
    same(re.search(r'appVersion" -}}\n(.+)\n', image).group(1), program, "the default tag in _image.tpl")
    same(chart["dependencies"][0]["version"], library["version"], "the dependency's version")
    for name in ("okapi", "mod-authtoken"):
        sidecar = charts.load(charts.ROOT / f"deploy/folio-helm/{name}-values.yaml")["sidecarContainers"]["authSidecar"]
        same(sidecar["image"]["tag"], program, f"the tag in {name}-values.yaml")
    return program


def values_agree():
    """The library's defaults are the application chart's."""
    ours, theirs = charts.load(charts.CHART / "values.yaml"), charts.load(charts.LIBRARY / "values.yaml")
    for key, value in theirs.items():
        assert key in ours, f"the application chart has no {key}"
        if key != "topology":
            same(value, ours[key], f"the library's {key}")
    return f"{len(theirs)} keys"


def _strict(schema, path, problems):
    if "$ref" in schema:
        return
    if "properties" in schema and schema.get("additionalProperties") is not False and path not in OPEN:
        problems.append(f"{path or 'the root'} takes unknown keys")
    if not any(key in schema for key in ("type", "enum", "oneOf")):
        problems.append(f"{path} has no type")
    if "array" in schema.get("type", []) and "items" not in schema:
        problems.append(f"{path} has items of any kind")
    for key, part in schema.get("properties", {}).items():
        _strict(part, f"{path}.{key}".lstrip("."), problems)


def _mentioned(schema, values, path, problems):
    """Every key of the schema is in values.yaml, where that has an object with keys and not an empty one."""
    if not isinstance(values, dict) or not values:
        return
    for key, part in schema.get("properties", {}).items():
        if key in values:
            _mentioned(part, values[key], f"{path}.{key}", problems)
        elif path or key not in OPEN | {"enabled"}:
            problems.append(f"values.yaml does not mention {path}.{key}")


def schema_is_strict():
    """The schema is a schema, closed at every level, and values.yaml mentions every key it has."""
    schema = json.loads((charts.CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    problems = []
    _strict(schema, "", problems)
    for name, definition in schema["definitions"].items():
        _strict(definition, f"definition {name}", problems)
    _mentioned(schema, charts.load(charts.CHART / "values.yaml"), "", problems)
    none(problems)
    return f"{len(schema['properties'])} keys at the root, {len(schema['definitions'])} definitions"


def lint(chart, helm):
    """`helm lint --strict` for every values file."""
    for values in values_files():
        charts.run(helm, "lint", "--strict", chart, "--values", values, "--kube-version", generated.version_of(values))
    library = pathlib.Path(chart).parent / "auth-sidecar-lib"
    charts.run(helm, "lint", "--strict", library)
    return f"{len(values_files())} values files and the library"


def package(chart, helm, folder):
    """The package holds the templates, the copies and the library, and nothing of ci/."""
    charts.run(helm, "package", chart, "--destination", folder)
    archive = next(pathlib.Path(folder).glob("okapi-auth-sidecar-*.tgz"))
    names = subprocess.run(["tar", "-tzf", archive], capture_output=True, text=True, check=True).stdout.split()
    archive.unlink()
    inside = {name.split("/", 1)[1] for name in names}
    for wanted in ("values.schema.json", "files/alerts.yaml", f"files/{generated.BOARD}", "values-ha.yaml", "templates/NOTES.txt"):
        assert wanted in inside, f"{wanted} is not in the package"
    assert any("auth-sidecar-lib" in name for name in inside), "the library is not in the package"
    assert not any(name.startswith("ci/") for name in inside), "ci/ is in the package"
    return f"{len(inside)} files"


def matrix(chart, values):
    """One values file for every version: both Helms render the same, and Kubernetes takes it."""
    versions, seen = generated.versions_of(values), {}
    for version in versions:
        three, four = (
            generated.golden(charts.render(helm, chart, [values], f"{version}.0")) for helm in charts.HELMS.values()
        )
        assert three == four, f"the two Helms render differently for {version}"
        documents = seen.setdefault(three, charts.documents(three))
        none(validate.problems(documents, version))
    _meaning(documents)
    return f"{len(documents)} objects, {len(versions)} versions, 2 Helms"


def _meaning(documents):
    """What the newest version's rendering must mean."""
    services = [d["spec"]["selector"] for d in documents if d["kind"] == "Service"]
    policies = [d for d in documents if d["kind"] == "NetworkPolicy"]
    for document, spec, labels in pods.pod_specs(documents):
        assert spec["automountServiceAccountToken"] is False
        if document["kind"] == "Deployment":
            pods.sound(spec)
            for selector in services + [document["spec"]["selector"]["matchLabels"]]:
                assert selector.items() <= labels.items(), "the Service does not select the pods"
            assert "replicas" not in document["spec"] or not any(d["kind"] == "HorizontalPodAutoscaler" for d in documents)
        else:
            assert len(spec["containers"]) == 1
            pods.hardened(spec["containers"][0], document["metadata"]["name"])
            for selector in services + [p["spec"]["podSelector"]["matchLabels"] for p in policies]:
                assert not selector.items() <= labels.items(), f"{document['metadata']['name']} is taken for the program"
            assert "helm.sh/hook" in document["metadata"]["annotations"]
    for document in documents:
        assert len(document["metadata"]["name"]) <= 63


def native_from_129(chart):
    """`auto` follows the cluster's version, managed clusters' names of versions included."""
    values = CI / "okapi-auto-values.yaml"
    for version, expected in (
        ("1.25.0", "containers"), ("1.28.15", "containers"), ("v1.28.9-gke.1000", "containers"), ("1.29.0", "initContainers"),
        ("v1.29.4-eks-036c24b", "initContainers"), ("1.37.1", "initContainers"),
    ):
        documents = charts.documents(charts.render(charts.HELM4, chart, [values], version))
        patch = yaml.safe_load(pods.find(documents, "ConfigMap", "okapi-auth-sidecar-patch")["data"]["patch.yaml"])
        same(pods.sidecar(patch["spec"]["template"]["spec"])[0], expected, version)
    return "containers before, initContainers from 1.29"


def ha_overlay(chart):
    """values-ha.yaml goes on top of any values of the topology."""
    documents = charts.documents(
        charts.render(charts.HELM4, chart, [CI / "default-values.yaml", charts.CHART / "values-ha.yaml"])
    )
    none(validate.problems(documents, "1.33"))
    deployment = pods.find(documents, "Deployment", "okapi-auth-sidecar")
    same(deployment["spec"]["replicas"], 3, "replicas")
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    for constraint in spread:
        same(constraint["labelSelector"]["matchLabels"], deployment["spec"]["selector"]["matchLabels"], "the spread's selector")
    pods.sound(deployment["spec"]["template"]["spec"])


def carried_files(chart):
    """The ConfigMap and the PrometheusRule hold what deploy/ holds."""
    documents = charts.documents(charts.render(charts.HELM3, chart, [CI / "monitoring-values.yaml"]))
    board = pods.find(documents, "ConfigMap", "okapi-auth-sidecar-dashboard")["data"][generated.BOARD]
    same(json.loads(board), json.loads((charts.CHART / "files" / generated.BOARD).read_text()), "the board")
    alerts = charts.load(charts.CHART / "files/alerts.yaml")["groups"]
    disabled = charts.load(CI / "monitoring-values.yaml")["metrics"]["prometheusRule"]["defaultRules"]["disabled"]
    expected = [rule for group in alerts for rule in group["rules"] if rule.get("alert") not in disabled]
    rendered = pods.find(documents, "PrometheusRule", "okapi-auth-sidecar")["spec"]["groups"]
    same([rule for group in rendered for rule in group["rules"]], expected, "the alerts")
    return f"{len(expected)} alerts"


def notes(chart):
    """What a person is told fits the topology, and names nothing that is not there."""
    for values, words in (
        ("default", ["rollout status deployment/okapi-auth-sidecar", "helm --namespace default test", "registration.enabled"]),
        ("registration", ["logs job/okapi-auth-sidecar-register"]),
        ("okapi-auto", ["patch statefulset okapi-cluster --patch-file", "native sidecar", "http://127.0.0.1:8071"]),
        ("okapi-container", ["plain container beside Okapi", "register` yourself"]),
        ("authtoken", ["patch service mod-authtoken", "discovery stays as it is"]),
    ):
        text = charts.run(
            charts.HELM4, "install", charts.RELEASE, chart, "--dry-run=client", "--values", CI / f"{values}-values.yaml"
        ).split("NOTES:")[1]
        for word in words:
            assert word in text, f"the notes for {values} do not say {word!r}"
        assert "<no value>" not in text and "%!" not in text, text
    return "5 topologies and variants"


def refused(chart, case, helm):
    """Values that must fail, with a message that says what is wrong."""
    try:
        charts.run(
            helm, "template", charts.RELEASE, chart, "--kube-version", case.get("kubernetes", "1.33.0"),
            "--values", CI / "default-values.yaml", "--values", "-", stdin=yaml.safe_dump(case["values"]),
        )
    except charts.Failed as failure:
        assert re.search(case["says"], str(failure)), f"refused, but without saying {case['says']!r}: {failure}"
    else:
        raise AssertionError("rendered without complaint")


def all_refused(chart, kind):
    """Every case of that kind in ci/refused.yaml, with both Helms."""
    cases = [case for case in charts.load(CI / "refused.yaml") if case["by"] == kind]
    assert cases
    wrong = []
    for case in cases:
        for name, helm in charts.HELMS.items():
            try:
                refused(chart, case, helm)
            except AssertionError as error:
                wrong.append(f"{case['name']} ({name}): {error}")
    none(wrong)
    return f"{len(cases)} values, 2 Helms"


def annotations():
    """What Artifact Hub reads from Chart.yaml can be read."""
    for folder in (charts.CHART, charts.LIBRARY):
        chart = charts.load(folder / "Chart.yaml")
        for change in yaml.safe_load(chart["annotations"]["artifacthub.io/changes"]):
            assert change["kind"] in ("added", "changed", "deprecated", "removed", "fixed", "security") and change["description"]
        for key in chart["annotations"]:
            assert isinstance(chart["annotations"][key], str), f"{key} is not a text"


def umbrella(chart):
    """A chart of somebody else that includes the library under an alias."""
    source = pathlib.Path(chart).parent / "auth-sidecar-lib/ci/umbrella"
    charts.run(charts.HELM3, "dependency", "update", source)
    for helm in charts.HELMS.values():
        for version, expected in (("1.28.0", "containers"), ("1.33.0", "initContainers")):
            documents = charts.documents(charts.render(helm, source, version=version))
            none(validate.problems(documents, version.removesuffix(".0")))
            spec = pods.find(documents, "Deployment", "okapi")["spec"]["template"]["spec"]
            same(pods.sound(spec), expected, f"for {version}")
            same(pods.sidecar(spec)[1]["image"], "okapi-auth-sidecar:" + versions_agree(), "the image")
        for setting, says in (
            ("authSidecar.config.cacheTtl=60", "cacheTtl"), ("authSidecar.config.cacheTll=60s", "cacheTll"),
            ("authSidecar.config.upstreamUrl=", "upstreamUrl is missing"), ("authSidecar.topology=standalone", "topology"),
        ):
            try:
                charts.run(helm, "template", "x", source, "--set", setting)
            except charts.Failed as failure:
                assert says in str(failure), failure
            else:
                raise AssertionError(f"{setting} was not refused")
    return "an alias, 2 versions, 2 Helms, 4 refusals"


def settings_source():
    """The program's table of settings as text, when its source is there: name, default, meaning of each."""
    for path in sorted((charts.ROOT / "src").rglob("*.rs")):
        _, found, rest = path.read_text().partition("pub const SETTINGS")
        if found:
            return rest[: rest.index("];\n")]
    return None


def settings_agree(source):
    """The chart has a key for each of the program's settings, and tells the program's defaults as the program has them."""
    known = dict(re.findall(r'\(\s*"([A-Z_]+)",\s*"([^"]*)",', source))
    assert len(known) > 20, "the table of settings could not be read"
    # A secret has no business in values, and a file of settings comes through extraEnv.
    expected = known.keys() - {"ADMIN_TOKEN", "CONFIG"}
    keys = charts.load(charts.CHART / "values.yaml")["config"]
    names = {re.sub("([A-Z])", r"_\1", key).upper(): key for key in keys}
    same(sorted(names), sorted(expected), "settings")
    comments = dict(re.findall(r"^## @param config\.(\w+) (.*)$", (charts.CHART / "values.yaml").read_text(), re.MULTILINE))
    for name, key in names.items():
        _, told, default = comments[key].partition("Program's default: ")
        same(default if told else "", known[name], f"the default of {key}")
    return f"{len(names)} settings"


def program():
    """The built program, when there is one; the checks never build it."""
    candidates = [os.environ.get("AUTH_SIDECAR_BINARY"), *(charts.ROOT / f"target/{kind}/okapi-auth-sidecar" for kind in ("release", "debug"))]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            help_text = subprocess.run([candidate, "--help"], capture_output=True, text=True, timeout=20, check=False).stdout
            # A placeholder program knows no commands.
            if "healthcheck" in help_text and "check" in help_text:
                return pathlib.Path(candidate)
    return None


def program_takes_settings(chart, binary, folder):
    """The program accepts every setting the chart can render, under the name and in the form the chart gives it."""
    documents = charts.documents(charts.render(charts.HELM3, chart, [CI / "standalone-full-values.yaml"]))
    container = pods.sidecar(pods.find(documents, "Deployment", "auth-cache")["spec"]["template"]["spec"])[1]
    environment = {f"AUTH_SIDECAR_{name}": value for name, value in pods.settings(container).items()}
    for name, value in environment.items():
        if name.endswith("_FILE"):
            path = pathlib.Path(folder, pathlib.Path(value).name)
            path.write_text("a-token-for-the-check" if "TOKEN" in name else "")
            environment[name] = str(path)
    # A trust anchor must be a certificate, which is not the chart's affair.
    environment.pop("AUTH_SIDECAR_UPSTREAM_CA_FILE")
    result = subprocess.run(
        [binary, "check"], env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True, timeout=20, check=False
    )
    assert result.returncode == 0, result.stderr or result.stdout
    return f"{len(environment)} settings"


def program_takes_arguments(chart, binary):
    """Every flag of the Jobs and of the test pod is one the program has."""
    documents = charts.documents(charts.render(charts.HELM3, chart, [CI / "standalone-full-values.yaml"]))
    count = 0
    for document, spec, _ in pods.pod_specs(documents):
        if document["kind"] == "Deployment":
            continue
        command, *arguments = spec["containers"][0]["args"]
        known = subprocess.run([binary, command, "--help"], capture_output=True, text=True, timeout=20, check=False).stdout
        for argument in arguments:
            flag = argument.split("=")[0]
            assert re.search(rf"{re.escape(flag)}\b", known), f"{command} has no {flag}"
            count += 1
    return f"{count} arguments"
