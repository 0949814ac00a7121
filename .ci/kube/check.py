"""Everything that can be checked of the Kubernetes files without a cluster and without the program; see ../kube.sh."""

import os
import pathlib
import tempfile

import chart_checks as chart
import charts
import deploy_checks as deploy
import generated
import validate
from report import Report, none


def up_to_date(report):
    """What is made from something else is what it would be made to now."""
    files, missing = generated.everything()
    wrong, left = generated.differences(files)
    stale = {os.path.relpath(path, charts.ROOT) for path in wrong + left}

    def group(name, *parts):
        mine = {path for path in stale if any(part in path for part in parts)}
        report.check(name, lambda: none([f"{path}: run helm/sync.sh" for path in sorted(mine)]))

    group("values table is up to date", "okapi-auth-sidecar/README.md")
    group("library schema is up to date", "auth-sidecar-lib/values.schema.json")
    group("renderings are up to date", "ci/rendered")
    group("kustomize components are up to date", "deploy/kustomize")
    for source, target in generated.COPIES.items():
        if source in missing:
            report.cannot(f"the chart's copy of {source}", "that file is not there")
        else:
            group(f"the chart's copy of {source}", target)


def main():
    """All checks, in the order in which a mistake is best understood."""
    report = Report()
    with charts.workshop() as folder, tempfile.TemporaryDirectory() as scratch:
        ours = pathlib.Path(folder, "helm/okapi-auth-sidecar")
        report.check("versions agree", chart.versions_agree)
        report.check("library and chart have the same defaults", chart.values_agree)
        report.check("values schema is strict", chart.schema_is_strict)
        report.check("annotations of Artifact Hub", chart.annotations)
        up_to_date(report)
        for name, helm in charts.HELMS.items():
            report.check(f"lint, {name}", chart.lint, ours, helm)
            report.check(f"package, {name}", chart.package, ours, helm, scratch)
        for values in chart.values_files():
            report.check(f"renders and validates: {values.stem}", chart.matrix, ours, values)
        report.check("native sidecar by version", chart.native_from_129, ours)
        report.check("values-ha.yaml", chart.ha_overlay, ours)
        report.check("board and alerts arrive unchanged", chart.carried_files, ours)
        report.check("notes, Helm 4", chart.notes, ours)
        report.cannot("notes, Helm 3", "its dry run asks a cluster; the same template as with Helm 4")
        report.check("the schema refuses what is wrong alone", chart.all_refused, ours, "schema")
        report.check("the templates refuse what is wrong together", chart.all_refused, ours, "template")
        report.check("the library in another chart", chart.umbrella, ours)
        for case in (
            ("okapi-native", "okapi", "Deployment", "okapi", "initContainers"),
            ("okapi-container", "okapi", "Deployment", "okapi", "containers"),
            ("authtoken", "mod-authtoken", "Deployment", "mod-authtoken", "containers"),
        ):
            report.check(f"kubectl patch: {case[0]}", deploy.kubectl_patch, ours, *case)
        for example in deploy.examples():
            report.check(f"kustomize: {example}", deploy.example, example)
        for name, helm in charts.HELMS.items():
            for module in ("okapi", "mod-authtoken"):
                report.check(f"FOLIO values for {module}, {name}", deploy.folio_values, helm, module)
        report.check("post-renderer, Helm 3.17.2", deploy.post_renderer, 3)
        report.check("post-renderer, Helm 4.3.1", deploy.post_renderer, 4)
        report.check("monitor for sidecars of FOLIO's values", deploy.folio_monitor)
        source = chart.settings_source()
        if source:
            report.check("the program's settings and defaults", chart.settings_agree, source)
        else:
            report.cannot("the program's settings and defaults", "no table of settings in src/")
        binary = chart.program()
        for name, check, more in (
            ("the program takes every setting", chart.program_takes_settings, [scratch]),
            ("the program has every argument", chart.program_takes_arguments, []),
        ):
            if binary:
                report.check(name, check, ours, binary, *more)
            else:
                report.cannot(name, "no built program in target/; AUTH_SIDECAR_BINARY names one")
    report.cannot("a real cluster", f"schemas of {validate.VERSIONS[0]} to {validate.VERSIONS[-1]} stand in for it; no kubelet ran a sidecar")
    report.cannot("FOLIO's own charts", "not to be had; deploy/folio-helm/test renders the same shapes")
    report.end()


if __name__ == "__main__":
    main()
