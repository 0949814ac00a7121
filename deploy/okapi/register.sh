#!/usr/bin/env bash
# Has Okapi ask the sidecar instead of mod-authtoken, without a moment in which nobody, or nobody who works, is asked.
# For people without our image; `okapi-auth-sidecar register` does the same and a little more. Needs bash, curl and jq.
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=deploy/okapi/common.sh
. "$here/common.sh"

URL=${AUTH_SIDECAR_REGISTER_URL:-http://127.0.0.1:8071}
WAIT=${AUTH_SIDECAR_REGISTER_WAIT:-0s}

usage() {
  cat <<'TEXT'
register.sh: has Okapi ask the sidecar instead of mod-authtoken

  --url URL               where Okapi finds the sidecar (http://127.0.0.1:8071: each Okapi pod its own)
  --wait TIME             wait so long until every Okapi pod reaches its sidecar, e.g. 600s or 10m (0s)
TEXT
  common_usage
}

while (($# > 0)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  --dry-run) DRY_RUN=yes && shift ;;
  --url) need_value "$@" && URL=$2 && shift 2 ;;
  --wait) need_value "$@" && WAIT=$2 && shift 2 ;;
  *)
    need_value "$@"
    common_flag "$1" "$2" || die "$USAGE" "$1 is no flag of register.sh; see --help"
    shift 2
    ;;
  esac
done

URL=${URL%/}
is_base_url "$URL" || die "$USAGE" "--url $URL must be an address without a path, e.g. http://127.0.0.1:8071"
case $WAIT in
*[!0-9sm]* | '' | s | m) die "$USAGE" "--wait $WAIT must be a number and a unit: 600s or 10m" ;;
*s) wait_seconds=${WAIT%s} ;;
*m) wait_seconds=$((${WAIT%m} * 60)) ;;
*) die "$USAGE" "--wait $WAIT must be a number and a unit: 600s or 10m" ;;
esac

begin
find_module
is_enabled || die "$REFUSED" "$MODULE is not enabled for tenant ${TENANT:-$LOGIN_TENANT}, so a call for it would prove nothing; name another with --tenant"
count_pods
view "$PATIENCE" || die "$OKAPI_FAILED" "$(refusal 'list of entries')"
FOUND=$ENTRIES
PARKED_BEFORE=$RECORDS
jq -r '.[] | "     found \(.instId) -> \(.url)"' <<<"$FOUND"

OURS=$(entry "$MODULE" "$INSTANCE" "$URL")
BRIDGE=$(entry "$MODULE" "$INSTANCE-moving" "$URL")
REHEARSAL=$(entry "$PARKED" "$INSTANCE-rehearsal" "$URL")

# Ours under another address; entries that lead to the sidecar under another name, or that a killed run left; all others.
old=$(jq -c --argjson o "$OURS" '[.[] | select(.instId == $o.instId and .url != $o.url)]' <<<"$FOUND")
doubles=$(jq -c --argjson o "$OURS" '[.[] | select(.instId != $o.instId and (.url == $o.url or .instId == $o.instId + "-moving" or .instId == $o.instId + "-moving-back"))]' <<<"$FOUND")
direct=$(jq -c --argjson o "$OURS" --argjson d "$doubles" '[.[] | select(.instId != $o.instId) | select(. as $e | $d | index([$e]) | not)]' <<<"$FOUND")

kube=$(jq -r '[.[] | select(.instId | startswith("kube_")) | "\(.instId) -> \(.url)"] | join(", ")' <<<"$direct")
[[ -z $kube ]] || die "$REFUSED" "Okapi's own Kubernetes discovery supplies $kube and would add it again every 30 s. Sidecar in Okapi's pod, or alone: take the label app.kubernetes.io/version away from the Service of mod-authtoken, or give its port another name than http or https, wait until the entry is gone, then register again. Sidecar in mod-authtoken's pod: nothing is to be registered"
launched=$(jq -r '[.[] | select(.nodeId != null) | "\(.instId) -> \(.url)"] | join(", ")' <<<"$direct")
[[ -z $launched ]] || die "$REFUSED" "Okapi launched $launched itself: to remove that entry is to stop the process, and the sidecar needs it. Run mod-authtoken outside Okapi's deployment first"
refuse_taken "$INSTANCE"
refuse_taken "$INSTANCE-moving"

# Our entry is there and right: whether it is alone or not, nobody has to be rehearsed or added.
is_right=$(jq --argjson o "$OURS" 'any(.[]; .instId == $o.instId and .url == $o.url)' <<<"$FOUND")
in_use=$(jq --argjson o "$OURS" 'any(.[]; .url == $o.url)' <<<"$FOUND")

if [[ $DRY_RUN == yes ]]; then
  [[ $in_use == true ]] || say "plan wait until every Okapi pod reaches $URL, by an entry that is out of use"
  [[ $old == '[]' ]] || say "plan exchange $(show "$(jq -c '.[0]' <<<"$old")") for $(show "$OURS"), with a bridge"
  [[ $is_right == true || $old != '[]' ]] || say "plan add $(show "$OURS")"
  say "plan make real calls, and ask for the health of $(show "$OURS")"
  jq -r '.[] | "plan park and remove \(.instId) -> \(.url)"' <<<"$direct"
  jq -r '.[] | "plan remove \(.instId) -> \(.url)"' <<<"$doubles"
  say "dry run: nothing was changed"
  exit "$DONE"
fi

# As it is now. Without an entry there is nothing to compare with, and what the sidecar is in use for shows below.
if [[ $in_use == false && $FOUND != '[]' ]]; then
  until=$((SECONDS + wait_seconds))
  until calls "$(count "$FOUND")"; do
    [[ -z $SIGNAL ]] || die "$INTERRUPTED" "interrupted by $SIGNAL; nothing was changed"
    ((SECONDS < until)) || die "$REFUSED" "requests fail already, before anything was changed: $REASON"
    sleep 0.5
  done
fi

if [[ $in_use == false ]]; then
  outdated=$(jq -c --argjson r "$REHEARSAL" '[.[] | select(.instId == $r.instId and .url != $r.url)]' <<<"$RECORDS")
  [[ $outdated == '[]' ]] || step forget delete "$(jq -c '.[0]' <<<"$outdated")"
  step park post "$REHEARSAL"
  await_health "$REHEARSAL" "$wait_seconds"
  step forget delete "$REHEARSAL"
fi

# calls_or_back ENTRIES: a call that fails is the sidecar's fault, unless others were in use beside it and are not reached.
calls_or_back() {
  local words others
  calls "$1" && return 0
  [[ -z $SIGNAL ]] || go_back "$INTERRUPTED" "interrupted by $SIGNAL"
  words=$REASON
  others=$(jq -c --arg u "$URL" '[.[] | select(.url != $u)]' <<<"$FOUND")
  if [[ $in_use == true && $others != '[]' ]]; then
    GOAL=$others
    while read -r item; do
      see_health "$item" || GOAL=''
    done < <(jq -c '.[]' <<<"$others")
    TOUCHED=$(jq -c --argjson f "$FOUND" '. + ($f | map(.instId))' <<<"$TOUCHED")
  fi
  go_back "$CHECK_FAILED" "$words"
}

if [[ $old != '[]' ]]; then
  if ! jq -e --arg u "$URL" 'any(.[]; .url == $u)' <<<"$doubles" >/dev/null; then
    stray=$(jq -c --argjson b "$BRIDGE" '[.[] | select(.instId == $b.instId)]' <<<"$doubles")
    [[ $stray == '[]' ]] || step remove delete "$(jq -c '.[0]' <<<"$stray")"
    step add post "$BRIDGE"
    doubles=$(jq -c --argjson b "$BRIDGE" '[.[] | select(.instId != $b.instId)] + [$b]' <<<"$doubles")
    calls_or_back "$(($(count "$FOUND") + 1))"
  fi
  step remove delete "$(jq -c '.[0]' <<<"$old")"
fi
[[ $is_right == true ]] || step add post "$OURS"
view "$PATIENCE" || go_back "$OKAPI_FAILED" "$(refusal 'list of entries')"
calls_or_back "$(count "$ENTRIES")"
see_health_or_back "$OURS"

while read -r item; do
  record=$(entry "$PARKED" "parked-$(jq -r .instId <<<"$item")" "$(jq -r .url <<<"$item")")
  outdated=$(jq -c --argjson r "$record" '[.[] | select(.instId == $r.instId and .url != $r.url)]' <<<"$RECORDS")
  [[ $outdated == '[]' ]] || step forget delete "$(jq -c '.[0]' <<<"$outdated")"
  step park post "$record"
done < <(jq -c '.[]' <<<"$direct")
removed=no
while read -r item; do
  step remove delete "$item"
  removed=yes
done < <(jq -c '.[]' < <(jq -n --argjson a "$direct" --argjson b "$doubles" '$a + $b'))

[[ $removed == no ]] || calls_or_back 1
[[ -z $SIGNAL ]] || go_back "$INTERRUPTED" "interrupted by $SIGNAL"
view "$PATIENCE" || go_back "$OKAPI_FAILED" "$(refusal 'list of entries')"
[[ $(jq -c 'map({srvcId, instId, url})' <<<"$ENTRIES") == "[$OURS]" ]] ||
  go_back "$CHECK_FAILED" "after all steps the entries are $(jq -c 'map(.instId)' <<<"$ENTRIES"); somebody else is at work on them, or Okapi's own Kubernetes discovery"
say "done: Okapi asks the sidecar for $MODULE: $(show "$OURS")"
