#!/usr/bin/env bash
# Checks charts, kustomize components and post-renderer, without a cluster and without building the program. Installs the
# tools it needs, pinned, into .ci/cache/kube (or KUBE_TOOLS) and prints one line for each check.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/kube" && pwd)
# shellcheck source=kube/tools.sh
. "$here/tools.sh"
if ! kube_tools; then
  echo "FAIL  the tools above are missing, so none of the Kubernetes checks ran"
  exit 1
fi
exec "$KUBE_PYTHON" -B "$here/check.py"
