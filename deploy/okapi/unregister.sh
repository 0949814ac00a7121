#!/usr/bin/env bash
# Has Okapi ask mod-authtoken itself again. For people without our image; `okapi-auth-sidecar unregister` does the same.
# Needs bash, curl and jq. Undoes what register.sh or the binary did, from the record that either leaves in Okapi's discovery.
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=deploy/okapi/common.sh
. "$here/common.sh"

RESTORE=no
DIRECT_URLS=()

usage() {
  cat <<'TEXT'
unregister.sh: has Okapi ask mod-authtoken itself again

  --restore               put the direct entries back first, from the record that registering has left
  --direct-url URL        where mod-authtoken listens, in place of the record; may be given several times
TEXT
  common_usage
}

while (($# > 0)); do
  case $1 in
  -h | --help) usage && exit 0 ;;
  --dry-run) DRY_RUN=yes && shift ;;
  --restore) RESTORE=yes && shift ;;
  --direct-url)
    need_value "$@"
    [[ $2 =~ ^https?://[^?#@[:space:]]+$ ]] || die "$USAGE" "--direct-url $2 must be an address, e.g. http://mod-authtoken"
    DIRECT_URLS+=("${2%/}")
    shift 2
    ;;
  *)
    need_value "$@"
    common_flag "$1" "$2" || die "$USAGE" "$1 is no flag of unregister.sh; see --help"
    shift 2
    ;;
  esac
done

begin
find_module
can_call=yes
is_enabled || can_call=no
[[ $can_call == yes ]] ||
  say "     $MODULE is not enabled for tenant ${TENANT:-$LOGIN_TENANT}: no real calls are made (see --tenant)"
count_pods
view "$PATIENCE" || die "$OKAPI_FAILED" "$(refusal 'list of entries')"
FOUND=$ENTRIES
PARKED_BEFORE=$RECORDS
jq -r '.[] | "     found \(.instId) -> \(.url)"' <<<"$FOUND"

our_url=$(jq -r --arg i "$INSTANCE" '[.[] | select(.instId == $i) | .url] | .[0] // ""' <<<"$FOUND")
mine=$(jq -c --arg i "$INSTANCE" --arg u "$our_url" \
  '[.[] | select(.instId == $i or .instId == $i + "-moving" or .instId == $i + "-moving-back" or ($u != "" and .url == $u))]' <<<"$FOUND")
direct=$(jq -c --argjson m "$mine" '[.[] | select(. as $e | $m | index([$e]) | not)]' <<<"$FOUND")

wanted='[]'
if ((${#DIRECT_URLS[@]} > 0)); then
  # FOLIO's own registration jobs give the first instance the module's id.
  wanted=$(printf '%s\n' "${DIRECT_URLS[@]}" | jq -c --raw-input --slurp --arg m "$MODULE" '
    split("\n") | map(select(. != "")) | to_entries
    | map({srvcId: $m, instId: (if .key == 0 then $m else "\($m)-\(.key + 1)" end), url: .value})')
  wanted=$(jq -c --argjson d "$direct" '[.[] | select(.url as $u | $d | any(.[]; .url == $u) | not)]' <<<"$wanted")
elif [[ $RESTORE == yes ]]; then
  wanted=$(jq -c --arg m "$MODULE" \
    '[.[] | select(.instId | startswith("parked-")) | {srvcId: $m, instId: (.instId | ltrimstr("parked-")), url}]' <<<"$RECORDS")
fi
missing=$(jq -c --argjson d "$direct" --arg u "$our_url" \
  '[.[] | select(.instId as $i | $d | any(.[]; .instId == $i) | not) | select($u == "" or .url != $u)]' <<<"$wanted")

if [[ $direct == '[]' && $missing == '[]' ]]; then
  if [[ $RESTORE == no && $mine != '[]' && ${#DIRECT_URLS[@]} -eq 0 ]]; then
    die "$REFUSED" "$INSTANCE is the only entry of $MODULE: without it every request would be answered 404. Put the direct entries back with --restore"
  fi
  die "$REFUSED" "no direct entry of $MODULE is there and none is on record: say where mod-authtoken listens with --direct-url, e.g. --direct-url http://mod-authtoken"
fi
while read -r item; do
  refuse_taken "$(jq -r .instId <<<"$item")"
done < <(jq -c '.[]' <<<"$missing")

if [[ $DRY_RUN == yes ]]; then
  jq -r '.[] | "plan add \(.instId) -> \(.url)"' <<<"$missing"
  jq -r '.[] | "plan remove \(.instId) -> \(.url)"' <<<"$mine"
  jq -r '.[] | "plan forget \(.instId) -> \(.url)"' <<<"$RECORDS"
  say "dry run: nothing was changed"
  exit "$DONE"
fi

# Who unregisters because requests fail must not be stopped, or sent back, because requests fail.
worked=yes
if [[ $can_call == yes && $FOUND != '[]' ]] && ! calls "$(count "$FOUND")"; then
  [[ -z $SIGNAL ]] || die "$INTERRUPTED" "interrupted by $SIGNAL; nothing was changed"
  say "     requests fail as it is now"
  worked=no
  BASELINE=''
fi

after=$(jq -n -c --argjson d "$direct" --argjson m "$missing" '$d + $m')
if [[ $mine != '[]' || $missing != '[]' ]]; then
  while read -r item; do
    step add post "$item"
  done < <(jq -c '.[]' <<<"$missing")
  while read -r item; do
    see_health_or_back "$item"
  done < <(jq -c '.[]' <<<"$after")
  while read -r item; do
    step remove delete "$item"
  done < <(jq -c '.[]' <<<"$mine")
  if [[ $can_call == yes ]] && ! calls "$(count "$after")"; then
    [[ -z $SIGNAL ]] || go_back "$INTERRUPTED" "interrupted by $SIGNAL"
    [[ $worked == yes ]] ||
      die "$NEEDS_HANDS" "$REASON; requests failed before as well, so nothing is put back"
    go_back "$CHECK_FAILED" "$REASON"
  fi
fi
[[ -z $SIGNAL ]] || go_back "$INTERRUPTED" "interrupted by $SIGNAL"
while read -r item; do
  step forget delete "$item"
done < <(jq -c '.[]' <<<"$RECORDS")
view "$PATIENCE" || die "$OKAPI_FAILED" "$(refusal 'list of entries'); everything was done, but it cannot be looked at"
say "done: Okapi asks $MODULE itself: $(jq -r 'map("\(.instId) -> \(.url)") | join(", ")' <<<"$ENTRIES")"
