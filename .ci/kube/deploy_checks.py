"""Checks of what puts the container into other charts' pods: patches, kustomize components, FOLIO's charts."""

import pathlib
import tempfile

import yaml

import charts
import pods
import validate
from report import none, same

CI = charts.CHART / "ci"
KUSTOMIZE = charts.ROOT / "deploy/kustomize"
FOLIO = charts.ROOT / "deploy/folio-helm"
STAND_IN = FOLIO / "test/chart"
WORKLOADS = KUSTOMIZE / "examples/workloads"
# A container's restartPolicy in an init container is in Kubernetes' schemas from 1.28 on, and in clusters from 1.29.
NATIVE = [version for version in validate.VERSIONS if int(version.split(".")[1]) >= 29]


def example(name):
    """One example of the kustomize components, with both kustomizes."""
    built = [charts.run(kubectl, "kustomize", KUSTOMIZE / "examples" / name) for kubectl in charts.KUBECTLS.values()]
    same(built[0], built[1], "the two versions of kustomize")
    documents = charts.documents(built[0])
    native = "native" in name
    for version in NATIVE if native else validate.VERSIONS:
        none(validate.problems(documents, version))
    lists = [
        pods.sound(spec)
        for document, spec, _ in pods.pod_specs(documents)
        if any(c["name"] == pods.NAME for c in spec["containers"] + spec.get("initContainers", []))
    ]
    same(lists, ["initContainers" if native else "containers"], "where the container is")
    _EXAMPLES[name](documents)
    return f"{len(documents)} objects"


def _native(documents):
    spec = pods.find(documents, "Deployment", "okapi")["spec"]["template"]["spec"]
    container = pods.sidecar(spec)[1]
    same(container["image"].rsplit(":", 1)[0], "registry.example.org/folio/okapi-auth-sidecar", "the image")
    same(pods.settings(container)["UPSTREAM_URL"], "http://mod-authtoken-2-17-0:8081", "the upstream")
    # Okapi's own init container still runs, and after the sidecar has started.
    same([c["name"] for c in spec["initContainers"]], ["okapi-auth-sidecar", "okapi-init"], "init containers")
    assert {d["kind"] for d in documents} >= {"PodMonitor", "PrometheusRule", "ConfigMap"}


def _classic(documents):
    spec = pods.find(documents, "StatefulSet", "okapi")["spec"]["template"]["spec"]
    same([c["name"] for c in spec["initContainers"]], ["okapi-init"], "init containers")


def _authtoken(documents):
    spec = pods.find(documents, "Deployment", "mod-authtoken")["spec"]["template"]["spec"]
    _outlasts(spec)
    service = pods.find(documents, "Service", "mod-authtoken")["spec"]["ports"]
    same([(port["name"], port["port"], port["targetPort"]) for port in service], [("http", 80, 8071)], "the Service")


def _outlasts(spec):
    """mod-authtoken's own container waits until the sidecar has drained, and the pod waits for it."""
    main = pods.sidecar(spec, "mod-authtoken")[1]
    sleep = int(main["lifecycle"]["preStop"]["exec"]["command"][1])
    values = pods.settings(pods.sidecar(spec)[1])
    drain = pods.seconds(values["DRAIN_DELAY"]) + pods.seconds(values.get("SHUTDOWN_TIMEOUT", "10s"))
    assert drain < sleep < spec["terminationGracePeriodSeconds"], (drain, sleep, spec["terminationGracePeriodSeconds"])
    same(main["readinessProbe"]["httpGet"], {"path": "/admin/health", "port": 8081}, "mod-authtoken's readiness")


def _standalone(documents):
    same(pods.find(documents, "Deployment", "okapi-auth-sidecar")["spec"]["replicas"], 3, "replicas")
    kinds = sorted(d["kind"] for d in documents if d["metadata"]["name"] == "okapi-auth-sidecar")
    same(kinds, ["Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount"], "objects")


_EXAMPLES = {"okapi-native-sidecar": _native, "okapi-sidecar": _classic, "authtoken-sidecar": _authtoken, "standalone": _standalone}


def examples():
    """The names of the examples; each component but `monitoring`, which is part of one, has its own."""
    found = {path.name for path in (KUSTOMIZE / "examples").iterdir()} - {"workloads"}
    same(found, set(_EXAMPLES), "examples")
    components = {path.parent.name for path in KUSTOMIZE.glob("*/kustomization.yaml")}
    same(components - {"monitoring"}, found, "components with an example")
    return sorted(found)


def kubectl_patch(chart, values, workload, kind, name, expected):
    """The patch of the ConfigMap, as the notes tell people to apply it."""
    documents = charts.documents(charts.render(charts.HELM4, chart, [CI / f"{values}-values.yaml"]))
    data = pods.find(documents, "ConfigMap", "okapi-auth-sidecar-patch")["data"]
    workloads = charts.documents((WORKLOADS / workload / "workload.yaml").read_text())
    with tempfile.TemporaryDirectory() as folder:
        patched = []
        for target, patch in ((kind, "patch.yaml"), ("Service", "service-patch.yaml")):
            if patch not in data:
                continue
            before, change = pathlib.Path(folder, "before.yaml"), pathlib.Path(folder, patch)
            before.write_text(yaml.safe_dump(next(d for d in workloads if d["kind"] == target)))
            change.write_text(data[patch])
            form = "json" if target == "Service" else "strategic"
            outs = [
                charts.documents(charts.run(
                    kubectl, "patch", "--local", "-o", "yaml", "-f", before, "--type", form, "--patch-file", change
                ))
                for kubectl in charts.KUBECTLS.values()
            ]
            same(outs[0], outs[1], "the two versions of kubectl")
            patched += outs[0]
    owner = pods.find(patched, kind, name)
    owner.pop("status", None)
    same(pods.sound(owner["spec"]["template"]["spec"]), expected, "where the container is")
    none(validate.problems(patched, "1.33"))
    if len(patched) > 1:
        _authtoken(patched)
    return f"{len(patched)} patches"


def folio_values(helm, name):
    """FOLIO's way to render a sidecar, values alone."""
    text = charts.render(helm, STAND_IN, [FOLIO / f"test/{name}.yaml", FOLIO / f"{name}-values.yaml"], release=name)
    documents = charts.documents(text)
    for version in validate.VERSIONS:
        none(validate.problems(documents, version))
    spec = pods.find(documents, "Deployment", name)["spec"]["template"]["spec"]
    kind, container = pods.sidecar(spec)
    same(kind, "containers", "where the container is")
    values = pods.settings(container)
    drain = pods.seconds(values["DRAIN_DELAY"]) + pods.seconds(values["SHUTDOWN_TIMEOUT"])
    assert drain + 5 < 30, f"drains for {drain}s of the 30s that the chart leaves"
    same(values["CACHE_MAX_BYTES"], "64MiB", "half of the limit")
    same(container["resources"]["limits"]["memory"], "128Mi", "the limit")
    if name == "mod-authtoken":
        ports = {port["name"]: port["containerPort"] for port in spec["containers"][0]["ports"]}
        port = pods.find(documents, "Service", name)["spec"]["ports"][0]
        same((port["port"], ports[port["targetPort"]]), (80, 8071), "the Service")
        same(values["LISTEN"], "0.0.0.0:8071", "the filter port")
    else:
        same(values["LISTEN"], "127.0.0.1:8071", "the filter port")
        assert len(pods.find(documents, "Service", name)["spec"]["ports"]) == 1, "the Service has a port more"
    return f"{len(values)} settings, {len(validate.VERSIONS)} versions"


def _post_rendered(major, values, *arguments):
    """`helm template` through the post-renderer, the way that version of Helm takes it."""
    files = [part for value in values for part in ("--values", value)]
    more = [f"--post-renderer-args={argument}" for argument in arguments]
    if major == 3:
        return charts.run(charts.HELM3, "template", "test", STAND_IN, *files, "--post-renderer", FOLIO / "post-renderer/render", *more)
    return charts.run(
        charts.HELM4, "template", "test", STAND_IN, *files, "--post-renderer", "okapi-auth-sidecar", *more,
        env={"HELM_PLUGINS": str(FOLIO)},
    )


def post_renderer(major):
    """A native sidecar in Okapi's pod, and a hardened one in mod-authtoken's, with and without the values file."""
    okapi = FOLIO / "test/okapi.yaml"
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as extra:
        yaml.safe_dump(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "any"},
             "spec": {"template": {"metadata": {"annotations": {"example.org/extra": "yes"}}}}}, extra,
        )
        extra.flush()
        documents = charts.documents(_post_rendered(
            major, [okapi], "okapi-native-sidecar", "image=registry.example.org/sidecar:1",
            "AUTH_SIDECAR_UPSTREAM_URL=http://mod-authtoken-2-17-0:8081", "AUTH_SIDECAR_CACHE_TTL_JITTER=0.5", extra.name,
        ))
    for version in NATIVE:
        none(validate.problems(documents, version))
    template = pods.find(documents, "Deployment", "okapi")["spec"]["template"]
    same(pods.sound(template["spec"]), "initContainers", "where the container is")
    container = pods.sidecar(template["spec"])[1]
    same(container["image"], "registry.example.org/sidecar:1", "the image")
    same(pods.settings(container)["UPSTREAM_URL"], "http://mod-authtoken-2-17-0:8081", "the upstream")
    same(pods.settings(container)["CACHE_TTL_JITTER"], "0.5", "a setting that looks like a number")
    same(template["metadata"]["annotations"]["example.org/extra"], "yes", "the patch of one's own")
    assert pods.find(documents, "Pod", "okapi-hook"), "the hook is gone"

    for values in ([], [FOLIO / "mod-authtoken-values.yaml"]):
        documents = charts.documents(_post_rendered(major, [FOLIO / "test/mod-authtoken.yaml", *values], "authtoken-sidecar"))
        for version in validate.VERSIONS:
            none(validate.problems(documents, version))
        spec = pods.find(documents, "Deployment", "mod-authtoken")["spec"]["template"]["spec"]
        same(pods.sound(spec), "containers", "where the container is")
        _outlasts(spec)
        same(pods.find(documents, "Service", "mod-authtoken")["spec"]["ports"][0]["targetPort"], 8071, "the Service")

    for says, values, arguments in (
        ("no Deployment or StatefulSet", [okapi], ["okapi-native-sidecar", "name=okapi-2"]),
        ("rendered by the chart's values already", [okapi, FOLIO / "okapi-values.yaml"], ["okapi-native-sidecar"]),
        ("no component", [okapi], ["okapi"]),
        ("what is ttl=60s", [okapi], ["okapi-sidecar", "ttl=60s"]),
    ):
        try:
            _post_rendered(major, values, *arguments)
        except charts.Failed as failure:
            # Helm 4 keeps to itself what a plugin says.
            assert says in str(failure) or major == 4, failure
        else:
            raise AssertionError(f"{arguments} was not refused")
    return "native, hardened, 4 refusals"


def folio_monitor():
    """The PodMonitor for sidecars whose chart declares no port."""
    documents = charts.documents((FOLIO / "podmonitor.yaml").read_text())
    none(validate.problems(documents, "1.33"))
    keep = documents[0]["spec"]["podMetricsEndpoints"][0]["relabelings"][0]
    for name in ("okapi", "mod-authtoken"):
        sidecar = charts.load(FOLIO / f"{name}-values.yaml")["sidecarContainers"]["authSidecar"]
        same(sidecar["name"], keep["regex"], f"the container's name in {name}-values.yaml")
