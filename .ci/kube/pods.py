"""What must hold for every pod that runs our image, however it was put there."""

import re

NAME = "okapi-auth-sidecar"
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def pod_specs(documents):
    """Document, pod spec and the pod's labels of everything that makes pods."""
    for document in documents:
        if document["kind"] == "Pod":
            yield document, document["spec"], document["metadata"].get("labels", {})
        elif document["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = document["spec"]["template"]
            yield document, template["spec"], template["metadata"].get("labels", {})


def find(documents, kind, name):
    """The one document of that kind and name."""
    found = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} of {kind}/{name}"
    return found[0]


def sidecar(spec, name=NAME):
    """The list our container is in and the container; it is in exactly one list, once."""
    found = [
        (kind, container)
        for kind in ("initContainers", "containers")
        for container in spec.get(kind, [])
        if container["name"] == name
    ]
    assert len(found) == 1, f"{len(found)} containers {name}"
    return found[0]


def settings(container):
    """The program's settings of a container: name without prefix to value."""
    return {
        entry["name"].removeprefix("AUTH_SIDECAR_"): entry.get("value")
        for entry in container["env"]
        if entry["name"].startswith("AUTH_SIDECAR_")
    }


def seconds(text):
    """A duration setting in seconds."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", text).groups()
    return int(number) * SECONDS[unit]


def hardened(container, where):
    """What Pod Security "restricted" asks of a container, and a root that cannot be written."""
    context = container["securityContext"]
    expected = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for key, value in expected.items():
        assert context.get(key) == value, f"{where}: securityContext.{key} is {context.get(key)!r}"
    requests = container["resources"]["requests"]
    assert requests["cpu"] and requests["memory"], f"{where}: no request"


def sound(spec, name=NAME, grace=None):
    """Checks one pod spec with our container in it; gives back the list the container is in."""
    kind, container = sidecar(spec, name)
    hardened(container, name)
    values = settings(container)
    for setting in values:
        # Kubernetes gives such names to Services, and the program ignores them.
        assert not re.match(r"(PORT|SERVICE_)", setting), f"setting {setting} looks like a Service"
    listen, admin = values["LISTEN"], values["ADMIN_LISTEN"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["auth-admin"] == int(admin.rsplit(":", 1)[1])
    if not listen.startswith("127."):
        assert ports["auth-filter"] == int(listen.rsplit(":", 1)[1])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        request = container.get(probe, {}).get("httpGet")
        assert not request or request["port"] in ports, f"{probe} asks port {request['port']}"
    native = kind == "initContainers"
    assert (container.get("restartPolicy") == "Always") == native, "restartPolicy does not fit the list"
    drain = seconds(values["DRAIN_DELAY"]) + seconds(values.get("SHUTDOWN_TIMEOUT", "10s"))
    allowed = spec.get("terminationGracePeriodSeconds", grace or 30)
    assert drain + 5 < allowed, f"drains for {drain}s of {allowed}s"
    mounted = {volume["name"] for volume in spec.get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        assert mount["name"] in mounted, f"volume {mount['name']} is not there"
    for setting, value in values.items():
        if setting.endswith("_FILE"):
            folders = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            assert any(value.startswith(f"{folder}/") for folder in folders), f"{setting} {value} is not mounted"
    return kind
