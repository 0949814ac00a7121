# shellcheck shell=bash
# For the scripts beside it, to be sourced: one line per check, the output of a check only when it failed.
failed=0
skipped=0
python=.ci/cache/py/bin

# check TITLE COMMAND...: runs the command; its output is shown when it fails.
check() {
    local title=$1 output
    shift
    output=$(mktemp)
    if "$@" > "$output" 2>&1; then
        printf 'ok: %s\n' "$title"
        rm -f "$output"
        return 0
    fi
    printf 'FAILED: %s\n' "$title"
    tail -40 "$output" | sed 's/^/    /'
    rm -f "$output"
    failed=$((failed + 1))
    return 1
}

# cannot_run WHAT: WHY: says so; for what no machine of this kind can run, so that the exit code stays as it is.
cannot_run() {
    printf 'NOT RUN: %s\n' "$1"
}

# not_run WHAT: WHY: says so and makes the exit code 3 when nothing else fails.
not_run() {
    printf 'NOT RUN: %s\n' "$1"
    skipped=$((skipped + 1))
}

# summary: ends the script.
summary() {
    printf '%s: %s failed, %s not run\n' "$(basename "$0")" "$failed" "$skipped"
    [ "$failed" -eq 0 ] || exit 1
    [ "$skipped" -eq 0 ] || exit 3
    exit 0
}

# need_packages NAME...: installs what is missing from Debian's archive; what cannot be had is noticed where it is used.
need_packages() {
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f '${Status}' "$name" 2> /dev/null | grep -q 'install ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } > /dev/null 2>&1 \
        || printf 'not installed: %s\n' "${missing[*]}"
}

# need_python: the environment with the pinned packages of requirements.txt, made once per content of that file.
need_python() {
    local stamp=.ci/cache/py/requirements.txt
    cmp -s .ci/requirements.txt "$stamp" && return
    rm -rf .ci/cache/py
    mkdir -p .ci/cache
    python3 -m venv .ci/cache/py && "$python/pip" install -q --disable-pip-version-check -r .ci/requirements.txt && cp .ci/requirements.txt "$stamp"
}

# free_port: a port of the loopback interface that nobody listens on right now.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
