"""Kubernetes' own schemas, strictly, and hand-written ones for the custom resources we render."""

import functools
import json
import pathlib

import jsonschema
import kubernetes_validate.utils as kubernetes

VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
_CRDS = {
    path.stem: jsonschema.Draft202012Validator(json.loads(path.read_text()))
    for path in (pathlib.Path(__file__).parent / "crds").glob("*.json")
}

# The validator reads its definitions, some megabytes, anew for each document.
kubernetes.schema_contents = functools.lru_cache(maxsize=512)(kubernetes.schema_contents)


@functools.lru_cache(maxsize=None)
def _problem(text, version):
    document = json.loads(text)
    if document["apiVersion"].startswith("monitoring.coreos.com/"):
        errors = sorted(_CRDS[document["kind"].lower()].iter_errors(document), key=str)
        return f"{'.'.join(map(str, errors[0].path))}: {errors[0].message}" if errors else None
    try:
        kubernetes.validate(document, version, strict=True)
    except kubernetes.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message[:300]}"
    except kubernetes.SchemaNotFoundError:
        return "Kubernetes knows no such kind"
    return None


def problems(documents, version):
    """What is wrong with these documents for that version of Kubernetes: one text for each."""
    found = []
    for document in documents:
        problem = _problem(json.dumps(document, sort_keys=True), version)
        if problem:
            found.append(f"{document['kind']}/{document['metadata']['name']} for {version}: {problem}")
    return found
