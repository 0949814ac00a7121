"""Rendering the charts and reading what comes out.

The charts are copied into a folder of their own first, and their dependencies are packed there, so that no check ever
sees an old copy of the library chart.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(os.environ["KUBE_TOOLS"])
HELMS = {"Helm 3.17.2": TOOLS / "helm-3.17.2/helm", "Helm 4.3.1": TOOLS / "helm-4.3.1/helm"}
HELM3, HELM4 = HELMS.values()
KUBECTLS = {"kubectl 1.32": TOOLS / "helm-3.17.2/kubectl", "kubectl 1.37": TOOLS / "helm-4.3.1/kubectl"}
CHART = ROOT / "helm/okapi-auth-sidecar"
LIBRARY = ROOT / "helm/auth-sidecar-lib"
RELEASE = "okapi-auth-sidecar"


class StrictLoader(yaml.CSafeLoader):
    """Refuses a key that is given twice, which YAML parsers otherwise swallow."""


def _mapping(loader, node, deep=False):
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise yaml.YAMLError(f"{node.start_mark}: given twice: {', '.join(map(str, sorted(twice)))}")
    return yaml.CSafeLoader.construct_mapping(loader, node, deep)


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# A lone "=" is a tag of YAML 1.1 that nobody means.
StrictLoader.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)


def documents(text):
    """The YAML documents of a text that hold anything."""
    return [document for document in yaml.load_all(text, Loader=StrictLoader) if document]


def load(path):
    """The one YAML document of a file."""
    return yaml.load(pathlib.Path(path).read_text(), Loader=StrictLoader)


class Failed(Exception):
    """A program ended badly; the text is what it said."""


# The user's own plugins, repositories and cluster must not change what a check sees.
_home = tempfile.TemporaryDirectory(prefix="kube-home-")
ENVIRONMENT = {
    "PATH": f"{TOOLS}/helm-3.17.2:{os.environ['PATH']}",
    "HOME": _home.name,
    "KUBECONFIG": "/dev/null",
    "HELM_CONFIG_HOME": f"{_home.name}/config",
    "HELM_CACHE_HOME": f"{_home.name}/cache",
    "HELM_DATA_HOME": f"{_home.name}/data",
}


def run(*command, stdin=None, env=None, cwd=None):
    """The standard output of a program; raises Failed when it fails."""
    result = subprocess.run(
        [str(part) for part in command], input=stdin, capture_output=True, text=True, cwd=cwd,
        env={**ENVIRONMENT, **(env or {})}, check=False, timeout=120,
    )
    if result.returncode != 0:
        raise Failed((result.stderr or result.stdout).strip())
    return result.stdout


def workshop():
    """A temporary copy of helm/ with dependencies in place; keep the object as long as the folder is needed."""
    folder = tempfile.TemporaryDirectory(prefix="kube-charts-")
    shutil.copytree(ROOT / "helm", f"{folder.name}/helm", ignore=shutil.ignore_patterns("charts"))
    run(HELM3, "dependency", "build", f"{folder.name}/helm/okapi-auth-sidecar")
    return folder


def render(helm, chart, values=(), version="1.33.0", release=RELEASE, more=()):
    """What `helm template` prints; `values` are files."""
    files = [part for file in values for part in ("--values", file)]
    return run(helm, "template", release, chart, "--kube-version", version, *files, *more)
