#!/usr/bin/env python3
"""Checks every crate that is built: a licence we accept, from the registry and nowhere else, no second version without a reason.

Reads `cargo metadata`; needs nothing but Python and cargo. Exits with 1 and a line per finding.
"""
import collections
import json
import re
import subprocess
import sys

# Licences that Apache-2.0 code may be shipped with.
ACCEPTED = {
    "Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0", "0BSD", "CC0-1.0",
    "Unlicense", "BSL-1.0", "Apache-2.0 WITH LLVM-exception", "MIT-0", "CDLA-Permissive-2.0",
}
# Crates that are there twice, each with the reason. Only what ends up in the shipped binary counts.
TWICE = {
    "base64": "metrics-exporter-prometheus is a generation behind jsonwebtoken and reqwest",
    "getrandom": "ring, ahash and rand take three generations",
    "hashbrown": "metrics-util is a generation behind quick_cache",
    "rand_core": "metrics-util's rand is a generation behind jsonwebtoken's signature traits",
    "syn": "build time only: derive macros are a generation apart",
}
REGISTRY = "registry+"


def accepted(expression):
    """Whether an SPDX expression can be satisfied with the accepted licences."""
    def words(text):
        return all(part.strip(" ()") in ACCEPTED for part in re.split(r"\bAND\b", text))
    # `A OR B AND C`: one alternative whose every part is accepted.
    flat = expression.replace("/", " OR ")
    if "(" in flat:
        # (A OR B) AND C: every conjunct must be acceptable by itself.
        return all(any(words(option) for option in re.split(r"\bOR\b", part)) for part in re.split(r"\bAND\b", flat))
    return any(words(option) for option in re.split(r"\bOR\b", flat))


def shipped(metadata):
    """Ids of the packages that the shipped binary is built from (no dev-dependencies)."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo, seen = [metadata["resolve"]["root"]], set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        for dep in nodes[node]["deps"]:
            if any(kind["kind"] in (None, "build") for kind in dep["dep_kinds"]):
                todo.append(dep["pkg"])
    return seen


def main():
    metadata = json.loads(subprocess.check_output(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]))
    root, ours = metadata["resolve"]["root"], shipped(metadata)
    findings, versions = [], collections.defaultdict(set)
    for package in metadata["packages"]:
        name = "%s %s" % (package["name"], package["version"])
        if package["id"] == root:
            continue
        if not (package["source"] or "").startswith(REGISTRY):
            findings.append("%s comes from %s, not from the registry" % (name, package["source"] or "a folder"))
        licence = package["license"] or ""
        if not accepted(licence):
            findings.append("%s has the licence '%s', which is not on the list" % (name, licence))
        if package["id"] in ours:
            versions[package["name"]].add(package["version"])
    for name, found in sorted(versions.items()):
        if len(found) > 1 and name not in TWICE:
            findings.append("%s is built in %d versions (%s): no reason is given" % (name, len(found), ", ".join(sorted(found))))
    for finding in findings:
        print("licences:", finding)
    print("licences: %d crates, %d of them shipped, %d findings" % (len(metadata["packages"]) - 1, len(ours) - 1, len(findings)))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
