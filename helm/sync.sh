#!/usr/bin/env bash
# Brings up to date what is made from something else: the chart's copies of board and alerts, its table of values, the
# library's schema, the committed renderings, the kustomize components. With --check it names what is out of date.
set -euo pipefail
ci=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.ci/kube" && pwd)
# shellcheck source=../.ci/kube/tools.sh
. "$ci/tools.sh"
kube_tools
exec "$KUBE_PYTHON" "$ci/generated.py" "$@"
