#!/usr/bin/env bash
# Builds the image for real, without a registry, and runs it locked down. One line per check.
#   .ci/image.sh             everything
#   .ci/image.sh --no-build  the checks of the image that the last run built
# The base image is made from Debian's packages (mmdebstrap); the compiler and the crates are this machine's own, mounted.
# Exit code: 0 all good, 1 a check failed, 3 nothing failed but something could not be run (each such thing: "NOT RUN: ...").
# shellcheck disable=SC2317 # the functions are called through check
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. .ci/checks.sh

image=localhost/okapi-auth-sidecar:ci
base=localhost/okapi-auth-sidecar-builder:bookworm
limit_mb=20
work=$(mktemp -d)
stop=()
name=""
finish() {
    for pid in "${stop[@]:-}"; do [ -n "$pid" ] && kill "$pid" 2> /dev/null; done
    [ -n "$name" ] && in_podman rm --force --ignore "$name" > /dev/null 2>&1
    rm -rf "$work"
}
trap finish EXIT

need_packages buildah podman crun mmdebstrap catatonit jq curl

# ---- lint ----
if need_python; then
    check "Dockerfile: hadolint" "$python/hadolint" Dockerfile
else
    not_run "hadolint: no Python environment"
fi
for tool in buildah podman mmdebstrap; do
    if ! command -v "$tool" > /dev/null; then
        not_run "image: $tool is not installed, so nothing is built"
        summary
    fi
done

# ---- build ----
# chroot isolation: needs no kernel features that a CI machine may lack. Docker format: OCI's has no HEALTHCHECK.
base_image() {
    buildah inspect --type image "$base" > /dev/null 2>&1 && return
    [ -s .ci/cache/builder.tar ] || mmdebstrap --quiet --variant=minbase --include=gcc,libc6-dev,ca-certificates bookworm .ci/cache/builder.tar || return
    local container
    container=$(buildah from scratch) || return
    buildah add -q "$container" .ci/cache/builder.tar / > /dev/null \
        && buildah config --env CARGO_HOME=/usr/local/cargo \
            --env PATH=/usr/local/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container" \
        && buildah commit -q "$container" "$base" > /dev/null
    local code=$?
    buildah rm "$container" > /dev/null
    return "$code"
}
# The toolchain is mounted without rustup and read-only: rustup in there would try to install into the machine's own.
build() {
    local toolchain
    toolchain=$(readlink -f "$(rustc --print sysroot)") || return
    nice buildah bud --isolation chroot --pull-never --network host --format docker --layers \
        --build-arg BUILDER_IMAGE="$base" --build-arg RUNTIME_IMAGE=scratch \
        --build-arg VERSION="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)" \
        --build-arg REVISION="$(git rev-parse HEAD 2> /dev/null || echo unknown)" \
        -v "${CARGO_HOME:-$HOME/.cargo}/registry:/usr/local/cargo/registry" -v "$toolchain:/usr/local/toolchain:ro" \
        -v /etc/ssl/certs:/etc/ssl/certs:ro \
        -t "$image" .
}
if [ "${1:-}" != --no-build ]; then
    mkdir -p .ci/cache
    check "builder: Debian bookworm with gcc, from packages" base_image || summary
    check "image: the multi-stage Dockerfile builds" build || summary
fi

# ---- what is in it ----
inspect() { buildah inspect --type image "$image"; }
mounted=""
rooted() {
    local container
    container=$(buildah from --pull-never "$image") || return
    mounted=$(buildah mount "$container") || return
    size=$(du -sb "$mounted" | cut -f1)
    find "$mounted" -type f -printf '/%P\n' | sort > "$work/files"
    cp "$mounted/okapi-auth-sidecar" "$work/program"
    buildah umount "$container" > /dev/null
    buildah rm "$container" > /dev/null
}
check "image: can be mounted" rooted || summary
check "image: holds the program and the CA certificates only" diff <(printf '/etc/ssl/certs/ca-certificates.crt\n/okapi-auth-sidecar\n') "$work/files"
check "image: $((size / 1000000)) MB, under $limit_mb" test "$size" -lt $((limit_mb * 1000000))
statically_linked() { ! readelf -d "$work/program" | grep -q NEEDED && ! readelf -l "$work/program" | grep -q INTERP; }
check "image: the program is linked statically" statically_linked
configured() {
    inspect | jq -e '.Docker.config | .User == "65532:65532" and .Entrypoint == ["/okapi-auth-sidecar"]
        and .Healthcheck.Test == ["CMD", "/okapi-auth-sidecar", "healthcheck"]
        and (.ExposedPorts | keys) == ["8071/tcp", "8072/tcp"]
        and (.Labels | has("org.opencontainers.image.version") and has("org.opencontainers.image.revision")
             and ."org.opencontainers.image.licenses" == "Apache-2.0")'
}
check "image: user, entry point, health check, ports, labels" configured

# ---- run it locked down ----
# On a machine without CAP_SYS_RESOURCE the default limits cannot be set, and with two cgroup trees crun finds neither.
cat > "$work/containers.conf" << 'CONF'
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
CONF
in_podman() {
    CONTAINERS_CONF="$work/containers.conf" unshare -m sh -c 'umount /sys/fs/cgroup/unified 2> /dev/null; exec "$@"' sh podman "$@"
}
upstream=$(free_port) filter=$(free_port) admin=$(free_port)
python3 .ci/slow_upstream.py "$upstream" > "$work/upstream.log" 2>&1 &
stop+=($!)
name=okapi-auth-sidecar-ci-$$
locked_down() {
    in_podman run --detach --name "$name" --network host --cgroups=disabled --read-only --read-only-tmpfs=false --cap-drop ALL \
        --security-opt no-new-privileges --log-driver k8s-file --log-opt path="$work/log" \
        --env AUTH_SIDECAR_UPSTREAM_URL="http://127.0.0.1:$upstream" --env AUTH_SIDECAR_LISTEN="127.0.0.1:$filter" \
        --env AUTH_SIDECAR_ADMIN_LISTEN="127.0.0.1:$admin" --env AUTH_SIDECAR_DRAIN_DELAY=2s "$image"
}
if ! in_podman info > "$work/info" 2>&1; then
    not_run "container: podman does not work on this machine: $(tail -1 "$work/info")"
    summary
fi
check "container: starts with a read-only root, no capabilities, no new privileges" locked_down || summary
of() { in_podman inspect --format "$1" "$name"; }
until_healthy() {
    local said
    for _ in $(seq 50); do
        said=$(in_podman healthcheck run "$name" 2>&1) && return
        sleep 0.2
    done
    echo "$said"
    cat "$work/log"
    return 1
}
# What comes after means nothing for a program that does not run.
check "container: healthy by its own health check" until_healthy || summary
pid=$(of '{{.State.Pid}}')
as_expected() {
    grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp|NSpid):' "/proc/$pid/status"
    grep -q "^Uid:.65532.65532.65532.65532$" "/proc/$pid/status" && grep -q "^CapEff:.0*$" "/proc/$pid/status" \
        && grep -q "^NoNewPrivs:.1$" "/proc/$pid/status" && grep -q "^NSpid:.*[[:space:]]1$" "/proc/$pid/status"
}
check "container: PID 1 runs as 65532 without capabilities" as_expected
read_only() { grep -qE '^[^ ]+ / [^ ]+ ro' "/proc/$pid/mounts"; }
check "container: the root is mounted read-only" read_only

# A call that mod-authtoken answers after 1.5 s is under way while the container is told to stop.
status() { curl -sS -o /dev/null -m 10 -w '%{http_code}' "$@"; }
status "http://127.0.0.1:$filter/slow" > "$work/slow" 2>&1 &
slow=$!
sleep 0.3
check "container: takes SIGTERM" in_podman kill --signal TERM "$name"
sleep 0.3
draining() { [ "$(status "http://127.0.0.1:$admin/health/ready")" = 503 ] && [ "$(status "http://127.0.0.1:$admin/health/live")" = 200 ]; }
check "container: live and not ready while it drains" draining
wait "$slow"
check "container: the call under way was answered" grep -qx 202 "$work/slow" || cat "$work/slow"
ended() { for _ in $(seq 75); do [ "$(of '{{.State.Running}}')" = false ] && return; sleep 0.2; done; return 1; }
check "container: ended within 15 s" ended
check "container: exit code 0" test "$(of '{{.State.ExitCode}}')" = 0 || cat "$work/log"
summary
