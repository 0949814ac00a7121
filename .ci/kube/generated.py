"""Files of the repository that are made from others of it.

    generated.py            writes those that differ
    generated.py --check    names those that differ and fails

Who changes the chart, its values, the board or the alerts runs helm/sync.sh, which calls this.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

import charts
import validate

BOARD = "okapi-auth-sidecar.json"
# From where, to where in the chart: a chart cannot read files outside its folder.
COPIES = {
    f"deploy/grafana/{BOARD}": f"files/{BOARD}",
    "deploy/prometheus/alerts.yaml": "files/alerts.yaml",
}
KUSTOMIZE = charts.ROOT / "deploy/kustomize"
# The version of Kubernetes for which ci/rendered is rendered, unless the values need a newer one.
RENDERED_FOR = "1.33"
MADE = "# Made from the Helm chart with ../values/{}.yaml; see ../README.md.\n"


class Text(str):
    """A text that YAML writes as a block when it has more than one line."""


yaml.SafeDumper.add_representer(
    Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


def copies():
    """Board and alerts, byte for byte; also what could not be copied, because it is not there."""
    files, missing = {}, []
    for source, target in COPIES.items():
        path = charts.ROOT / source
        if path.exists():
            files[charts.CHART / target] = path.read_text()
        else:
            missing.append(source)
    return files, missing


def values_table():
    """The chart's README with the table of values that the comments in values.yaml give."""
    generator = next(charts.TOOLS.glob("readme-generator-*/node_modules/.bin/readme-generator"))
    with tempfile.TemporaryDirectory() as folder:
        readme = pathlib.Path(folder, "README.md")
        shutil.copy(charts.CHART / "README.md", readme)
        result = subprocess.run(
            [generator, "--values", charts.CHART / "values.yaml", "--readme", readme],
            capture_output=True, text=True, check=False,
        )
        if result.returncode != 0:
            raise charts.Failed((result.stdout + result.stderr)[-2000:])
        return {charts.CHART / "README.md": readme.read_text()}


def library_schema():
    """The library chart's schema: that of the application chart, for the keys the library has."""
    schema = json.loads((charts.CHART / "values.schema.json").read_text())
    keys = charts.load(charts.LIBRARY / "values.yaml")
    # An alias or `enabled` may come from the chart that depends on it.
    kept = {key: value for key, value in schema["properties"].items() if key in keys or key in ("global", "enabled")}
    kept["topology"] = {"enum": ["okapi", "authtoken"]}
    used, todo = {}, [json.dumps(kept)]
    while todo:
        text = todo.pop()
        for name, definition in schema["definitions"].items():
            if f'"#/definitions/{name}"' in text and name not in used:
                used[name] = definition
                todo.append(json.dumps(definition))
    schema |= {
        "title": "Values of auth-sidecar-lib",
        "properties": kept,
        "definitions": {name: schema["definitions"][name] for name in schema["definitions"] if name in used},
    }
    return {charts.LIBRARY / "values.schema.json": json_text(schema) + "\n"}


def json_text(value, indent=0):
    """JSON with everything on one line that fits into 120 columns."""
    flat = json.dumps(value)
    if len(flat) + indent <= 112:
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        parts = [f"{pad}{json.dumps(key)}: {json_text(part, indent + 2)}" for key, part in value.items()]
    elif isinstance(value, list):
        parts = [pad + json_text(part, indent + 2) for part in value]
    else:
        return flat
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(parts) + "\n" + " " * indent + closing


def versions_of(values):
    """The versions of Kubernetes that a values file works with: all, or `# From Kubernetes 1.28.` in its first lines."""
    oldest = re.search(r"^# From Kubernetes (1[.]\d+)[.]$", values.read_text(), re.MULTILINE)
    return validate.VERSIONS[validate.VERSIONS.index(oldest.group(1)) if oldest else 0:]


def version_of(values):
    """The version for which a values file's committed rendering is made."""
    versions = versions_of(values)
    return f"{RENDERED_FOR if RENDERED_FOR in versions else versions[0]}.0"


def golden(text):
    """A rendering as it is stored: without the board, which has its own check, and without Helm 4's blank lines."""
    out = []
    for document in text.split("\n---\n"):
        data = charts.documents(document.removeprefix("---\n"))
        if data and BOARD in data[0].get("data", {}):
            head, _, _ = document.partition(f"  {BOARD}: |")
            document = f"{head}  {BOARD}: (the board of deploy/grafana)"
        out.append(document.strip("\n"))
    return "\n---\n".join(out) + "\n"


def renderings(chart, helm=None):
    """One rendering for each ci/*-values.yaml."""
    files = {}
    for values in sorted((charts.CHART / "ci").glob("*-values.yaml")):
        text = charts.render(helm or charts.HELM3, chart, [values], version_of(values))
        files[charts.CHART / "ci/rendered" / values.name.replace("-values", "")] = golden(text)
    return files


def _without_helm(document):
    """A document as kustomize should have it: no labels of Helm, no namespace, texts as blocks."""
    metadata = document["metadata"]
    metadata.pop("namespace", None)
    for label in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
        metadata["labels"].pop(label)
    namespaces = document.get("spec", {}).get("namespaceSelector", {})
    if "matchNames" in namespaces:
        # Of whatever namespace the monitor itself is in.
        del document["spec"]["namespaceSelector"]
    if BOARD in document.get("data", {}):
        document["data"][BOARD] = Text(document["data"][BOARD])
    for group in document.get("spec", {}).get("groups", []):
        for rule in group["rules"]:
            rule["expr"] = Text(rule["expr"])
            for key, text in rule.get("annotations", {}).items():
                rule["annotations"][key] = Text(text)
    return document


def kustomize(chart):
    """Patches and resources of the kustomize components."""
    files = {}
    for values in sorted((KUSTOMIZE / "values").glob("*.yaml")):
        folder = KUSTOMIZE / values.stem
        documents = charts.documents(charts.render(charts.HELM3, chart, [values]))
        patches = [document for document in documents if "patch.yaml" in document.get("data", {})]
        if patches:
            for name, patch in patches[0]["data"].items():
                files[folder / name] = MADE.format(values.stem) + patch
            continue
        texts = [
            yaml.dump(_without_helm(document), Dumper=yaml.SafeDumper, sort_keys=False, width=1000, allow_unicode=True)
            for document in documents
        ]
        files[folder / "resources.yaml"] = MADE.format(values.stem) + "---\n".join(texts)
    return files


def everything():
    """All generated files, as path to text, and the sources that are not there."""
    files, missing = copies()
    files |= values_table() | library_schema()
    # The charts are rendered with the copies and the schema as they will be.
    with charts.workshop() as folder:
        chart = pathlib.Path(folder, "helm/okapi-auth-sidecar")
        for path, text in files.items():
            pathlib.Path(folder, path.relative_to(charts.ROOT)).write_text(text)
        charts.run(charts.HELM3, "dependency", "update", chart)
        files |= renderings(chart) | kustomize(chart)
    return files, missing


def differences(files):
    """Generated files whose content on disk is another, and renderings that nothing makes any more."""
    wrong = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    left = [path for path in (charts.CHART / "ci/rendered").glob("*") if path not in files]
    return wrong, left


def main():
    """Writes, or with --check compares."""
    files, missing = everything()
    for source in missing:
        print(f"not there, so what is made from it was left alone: {source}")
    wrong, left = differences(files)
    check = sys.argv[1:] == ["--check"]
    for path in wrong:
        print(f"{'out of date' if check else 'written'}: {os.path.relpath(path, charts.ROOT)}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path])
    for path in left:
        print(f"{'left over' if check else 'removed'}: {os.path.relpath(path, charts.ROOT)}")
        if not check:
            path.unlink()
    return 1 if check and (wrong or left) else 0


if __name__ == "__main__":
    sys.exit(main())
