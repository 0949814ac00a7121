#!/usr/bin/env bash
# What register.sh and unregister.sh share: talking to Okapi, checking, and going back. Not to be run by itself.
#
# The order of the steps and the names of the entries are those of `okapi-auth-sidecar register`: a switch that was made by
# one can be undone by the other.

# Exit codes, the same as the binary's.
# shellcheck disable=SC2034 # not each of them is used in this file
readonly DONE=0 USAGE=2 REFUSED=3 OKAPI_FAILED=4 CHECK_FAILED=5 NEEDS_HANDS=6 INTERRUPTED=7

# How long one change is repeated while it may yet go well, and how long it is tried to put everything back, in seconds.
readonly PATIENCE=10 PUT_BACK_FOR=120

OKAPI_URL=${AUTH_SIDECAR_OKAPI_URL:-}
OKAPI_TOKEN_FILE=${AUTH_SIDECAR_OKAPI_TOKEN_FILE:-}
USERNAME=${AUTH_SIDECAR_OKAPI_USERNAME:-}
PASSWORD_FILE=${AUTH_SIDECAR_OKAPI_PASSWORD_FILE:-}
CA_FILE=${AUTH_SIDECAR_OKAPI_CA_FILE:-}
LOGIN_TENANT=${AUTH_SIDECAR_OKAPI_LOGIN_TENANT:-supertenant}
TENANT=${AUTH_SIDECAR_REGISTER_TENANT:-}
MODULE=${AUTH_SIDECAR_REGISTER_MODULE_ID:-auto}
MODULE_NAME=${AUTH_SIDECAR_REGISTER_MODULE_NAME:-mod-authtoken}
INSTANCE=${AUTH_SIDECAR_REGISTER_INSTANCE_ID:-}
PROBE_PATH=${AUTH_SIDECAR_REGISTER_PROBE_PATH:-/_/proxy/health}
SAMPLES=${AUTH_SIDECAR_REGISTER_SAMPLES:-20}
PODS=${AUTH_SIDECAR_OKAPI_PODS:-}
# shellcheck disable=SC2034 # the scripts look at it
DRY_RUN=no

TOUCHED='[]' # instance ids that this run has to do with
FOUND='[]'   # the module's entries before
GOAL=''      # what to go back to after a failure, when that is not what was found
PARKED_BEFORE='[]'
BASELINE=''
SIGNAL=''
STATUS=''
BODY=''
WORK=''

say() { printf '%s\n' "$*"; }

die() {
  local code=$1
  shift
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

common_usage() {
  cat <<'TEXT'
  --okapi-url URL         Okapi's address, e.g. http://okapi:9130
  --tenant TENANT         real calls are made for it; the auth module must be enabled for it (without it: the login tenant)
  --module-id ID          the auth module's id (without it: the version of that tenant, or the only one that runs)
  --module-name NAME      the auth module's name (mod-authtoken)
  --instance-id ID        the instance id of the sidecar's entry (<module id>-auth-sidecar)
  --okapi-token-file F    a file with a token; or the environment variable AUTH_SIDECAR_OKAPI_TOKEN
  --username U            a user who logs in, together with
  --password-file F       a file with the password
  --login-tenant TENANT   the tenant of that user or token (supertenant)
  --okapi-ca-file F       the certificate to trust when Okapi's address is https
  --okapi-pods N          how many Okapi pods there are (without it: Okapi's own list of nodes is counted)
  --samples N             so many checks in a row must go well, at the least (20)
  --probe-path PATH       what a real call asks for (/_/proxy/health)
  --dry-run               change nothing: say what would be done

Every flag but the last has an environment name, as with the binary. Exit codes:
  0 done   2 wrong command line   3 refused, nothing changed   4 Okapi cannot be reached or does not allow it, put back
  5 a check failed, put back   6 not everything could be put back: look at it now   7 interrupted, put back
TEXT
}

# Takes one flag that both scripts know; says with its status whether it was one.
common_flag() {
  case $1 in
  --okapi-url) OKAPI_URL=$2 ;;
  --tenant) TENANT=$2 ;;
  --module-id) MODULE=$2 ;;
  --module-name) MODULE_NAME=$2 ;;
  --instance-id) INSTANCE=$2 ;;
  --okapi-token-file) OKAPI_TOKEN_FILE=$2 ;;
  --username) USERNAME=$2 ;;
  --password-file) PASSWORD_FILE=$2 ;;
  --login-tenant) LOGIN_TENANT=$2 ;;
  --okapi-ca-file) CA_FILE=$2 ;;
  --okapi-pods) PODS=$2 ;;
  --samples) SAMPLES=$2 ;;
  --probe-path) PROBE_PATH=$2 ;;
  *) return 1 ;;
  esac
}

need_value() { [[ $# -ge 2 && -n $2 ]] || die "$USAGE" "$1 needs a value"; }

is_number() { [[ $1 =~ ^[1-9][0-9]{0,3}$ ]]; }

is_base_url() { [[ $1 =~ ^https?://[^/?#@[:space:]]+$ ]]; }

begin() {
  for tool in curl jq awk; do
    command -v "$tool" >/dev/null || die "$USAGE" "$tool is not installed"
  done
  OKAPI_URL=${OKAPI_URL%/}
  [[ $OKAPI_URL =~ ^https?://[^?#@[:space:]]+$ ]] ||
    die "$USAGE" "--okapi-url must be Okapi's address, e.g. http://okapi:9130"
  is_number "$SAMPLES" || die "$USAGE" "--samples $SAMPLES must be a number from 1 to 9999"
  [[ -z $PODS ]] || is_number "$PODS" || die "$USAGE" "--okapi-pods $PODS must be a number from 1 to 9999"
  [[ $PROBE_PATH == /* ]] || die "$USAGE" "--probe-path $PROBE_PATH must begin with /"
  WORK=$(mktemp -d) || die "$USAGE" "no temporary folder can be made"
  chmod 700 "$WORK"
  trap 'rm -rf "$WORK"' EXIT
  trap 'SIGNAL=SIGTERM' TERM
  trap 'SIGNAL=SIGINT' INT
  printf 'X-Okapi-Tenant: %s\n' "$LOGIN_TENANT" >"$WORK/headers"
  log_in
}

# ---- Okapi ----------------------------------------------------------------------------------------------------------

# request METHOD PATH HEADERS-FILE [BODY-FILE]: sets STATUS (000 without an answer) and BODY. A connection a request, as
# through a Service a kept one would reach the same Okapi pod for ever. Tokens travel in files: command lines can be seen.
request() {
  local args=(--silent --show-error --noproxy '*' --max-redirs 0 --connect-timeout 3 --max-time 10
    --request "$1" --header "@$3" --output "$WORK/body" --dump-header "$WORK/answer-headers" --write-out '%{http_code}')
  [[ -z $CA_FILE ]] || args+=(--cacert "$CA_FILE")
  [[ $# -lt 4 ]] || args+=(--header 'Content-Type: application/json' --data-binary "@$4")
  : >"$WORK/body"
  if ! STATUS=$(curl "${args[@]}" "$OKAPI_URL$2" 2>"$WORK/curl-error"); then
    STATUS=000
    BODY=$(<"$WORK/curl-error")
    return
  fi
  BODY=$(<"$WORK/body")
}

api() { request "$1" "$2" "$WORK/headers" "${@:3}"; }

# The request died on its way, be it in the auth module in front of Okapi: the same one may go well in a moment.
may_pass() {
  [[ $STATUS == 000 || $STATUS == 5* ]] ||
    [[ $STATUS == 404 && $BODY == *'No running module instance found'* ]]
}

succeeded() { [[ $STATUS == 2* ]]; }

absent() {
  [[ $STATUS == 404 && $BODY != *'No running module instance found'* && $BODY != *'No suitable module found for path'* ]]
}

# What went wrong, and what is needed.
refusal() {
  local more=''
  case $STATUS in
  401 | 403) more='; the user or token needs okapi.discovery.get, .post, .delete, okapi.discovery.health.get, okapi.proxy.modules.list, okapi.proxy.modules.get and okapi.proxy.tenants.modules.list in supertenant' ;;
  400) [[ $BODY != 'Token missing'* ]] || more='; give a token or a user' ;;
  esac
  printf '%s: %s: %.300s%s' "$1" "$STATUS" "$BODY" "$more"
}

# insist SECONDS METHOD PATH: asks again while it may pass.
insist() {
  local until=$((SECONDS + $1))
  while :; do
    api "$2" "$3"
    may_pass && ((SECONDS < until)) || return 0
    [[ -z $SIGNAL ]] || return 0
    sleep 0.2
  done
}

log_in() {
  local token=${AUTH_SIDECAR_OKAPI_TOKEN:-}
  if [[ -n $OKAPI_TOKEN_FILE ]]; then
    token=$(tr -d '\r\n' <"$OKAPI_TOKEN_FILE") || die "$USAGE" "--okapi-token-file $OKAPI_TOKEN_FILE cannot be read"
  fi
  if [[ -z $token && -n $USERNAME ]]; then
    [[ -r $PASSWORD_FILE ]] || die "$USAGE" "--password-file ${PASSWORD_FILE:-(none)} cannot be read"
    jq --null-input --arg user "$USERNAME" --rawfile password "$PASSWORD_FILE" \
      '{username: $user, password: ($password | rtrimstr("\n") | rtrimstr("\r"))}' >"$WORK/login"
    api POST /authn/login-with-expiry "$WORK/login"
    if [[ $STATUS == 404 ]]; then
      api POST /authn/login "$WORK/login"
    fi
    rm -f "$WORK/login"
    succeeded || die "$OKAPI_FAILED" "login of $USERNAME for tenant $LOGIN_TENANT failed: $STATUS: ${BODY:0:300}"
    token=$(tr -d '\r' <"$WORK/answer-headers" | awk '
      tolower($1) == "set-cookie:" && $2 ~ /^folioAccessToken=/ { sub(/^folioAccessToken=/, "", $2); sub(/;.*/, "", $2); print $2; exit }
      tolower($1) == "x-okapi-token:" { print $2; exit }')
    [[ -n $token ]] || die "$OKAPI_FAILED" "the login was accepted, but the answer holds no token"
  fi
  [[ -z $token ]] || printf 'X-Okapi-Token: %s\n' "$token" >>"$WORK/headers"
}

uri() { jq --null-input --raw-output --arg text "$1" '$text | @uri'; }

# ---- which module ---------------------------------------------------------------------------------------------------

tenant_modules() {
  insist "$PATIENCE" GET "/_/proxy/tenants/$(uri "$1")/modules"
  succeeded || die "$OKAPI_FAILED" "$(refusal "modules of tenant $1")"
}

find_module() {
  local version candidates
  version="^$MODULE_NAME-[0-9]"
  if [[ -n $MODULE && $MODULE != auto ]]; then
    insist "$PATIENCE" GET "/_/proxy/modules/$(uri "$MODULE")"
    if absent; then
      insist "$PATIENCE" GET "/_/proxy/modules?filter=$(uri "$MODULE_NAME")"
      die "$REFUSED" "Okapi knows no module $MODULE; it knows $(jq -r 'map(.id) | join(", ")' <<<"$BODY")"
    fi
    succeeded || die "$OKAPI_FAILED" "$(refusal "module $MODULE")"
  elif [[ -n $TENANT ]]; then
    tenant_modules "$TENANT"
    MODULE=$(jq -r --arg v "$version" '[.[].id | select(test($v))] | if length == 1 then .[0] else "" end' <<<"$BODY")
    [[ -n $MODULE ]] || die "$REFUSED" "no version of $MODULE_NAME is enabled for tenant $TENANT; name another tenant with --tenant"
  else
    insist "$PATIENCE" GET "/_/proxy/modules?filter=$(uri "$MODULE_NAME")"
    succeeded || die "$OKAPI_FAILED" "$(refusal 'list of modules')"
    candidates=$(jq -c --arg v "$version" '[.[].id | select(test($v))]' <<<"$BODY")
    insist "$PATIENCE" GET /_/discovery/modules
    succeeded || die "$OKAPI_FAILED" "$(refusal 'list of entries')"
    MODULE=$(jq -r --argjson c "$candidates" '
      [.[].srvcId] as $running | [$c[] | select(. as $id | $running | index($id))] as $r
      | if ($c | length) == 1 then $c[0] elif ($r | length) == 1 then $r[0] else "" end' <<<"$BODY")
    [[ -n $MODULE ]] ||
      die "$REFUSED" "several versions could be meant, or none: $(jq -r 'join(", ")' <<<"$candidates"); choose one with --module-id, or name a tenant with --tenant"
  fi
  INSTANCE=${INSTANCE:-$MODULE-auth-sidecar}
  PARKED="parked-$MODULE"
  say "     the auth module is $MODULE"
}

# A call for a tenant that does not use the module would go well whatever we do.
is_enabled() {
  tenant_modules "${TENANT:-$LOGIN_TENANT}"
  jq -e --arg id "$MODULE" 'any(.[]; .id == $id)' <<<"$BODY" >/dev/null
}

count_pods() {
  [[ -z $PODS ]] || return 0
  insist "$PATIENCE" GET /_/discovery/nodes
  PODS=3
  if succeeded; then
    PODS=$(jq 'if length > 0 then length else 1 end' <<<"$BODY")
  else
    say "     Okapi does not tell how many pods it has; 3 are assumed (see --okapi-pods)"
  fi
}

# ---- what is there --------------------------------------------------------------------------------------------------

# view SECONDS: sets ALL, ENTRIES (the module's) and RECORDS (those that are out of use).
view() {
  insist "$1" GET /_/discovery/modules
  succeeded || return 1
  ALL=$BODY
  ENTRIES=$(jq -c --arg m "$MODULE" '[.[] | select(.srvcId == $m) | {srvcId, instId, url, nodeId}]' <<<"$ALL")
  RECORDS=$(jq -c --arg m "$PARKED" '[.[] | select(.srvcId == $m) | {srvcId, instId, url}]' <<<"$ALL")
}

entry() { jq -c --null-input --arg s "$1" --arg i "$2" --arg u "$3" '{srvcId: $s, instId: $i, url: $u}'; }

show() { jq -r '"\(.instId) -> \(.url // "no address")"' <<<"$1"; }

refuse_taken() {
  local module
  module=$(jq -r --arg i "$1" --arg m "$MODULE" --arg p "$PARKED" \
    '[.[] | select(.instId == $i and .srvcId != $m and .srvcId != $p) | .srvcId] | .[0] // ""' <<<"$ALL")
  [[ -z $module ]] ||
    die "$REFUSED" "instance id $1 is already in use for module $module, and instance ids are unique over all modules: remove that entry, or choose another with --instance-id"
}

# ---- changes --------------------------------------------------------------------------------------------------------

touch_entry() { TOUCHED=$(jq -c --arg i "$1" '. + [$i]' <<<"$TOUCHED"); }

there() { jq -e --argjson e "$1" 'any(.[]; .instId == $e.instId and .srvcId == $e.srvcId and .url == $e.url)' <<<"$ALL" >/dev/null; }
gone() { jq -e --argjson e "$1" 'all(.[]; .instId != $e.instId or .srvcId != $e.srvcId)' <<<"$ALL" >/dev/null; }

post() {
  printf '%s' "$1" >"$WORK/entry"
  api POST /_/discovery/modules "$WORK/entry"
}

delete() {
  api DELETE "/_/discovery/modules/$(uri "$(jq -r .srvcId <<<"$1")")/$(uri "$(jq -r .instId <<<"$1")")"
  ! absent || STATUS=204
}

# change post|delete ENTRY: repeats it until the discovery shows that it is made; whether it is, is what the list says.
change() {
  local made=there until=$((SECONDS + PATIENCE)) status body
  [[ $1 == post ]] || made=gone
  touch_entry "$(jq -r .instId <<<"$2")"
  while :; do
    "$1" "$2"
    ! succeeded || return 0
    status=$STATUS body=$BODY
    if may_pass || [[ $BODY == *'Duplicate inst'* ]]; then
      view 0 && "$made" "$2" && return 0
    fi
    STATUS=$status BODY=$body
    may_pass && ((SECONDS < until)) || return 1
    sleep 0.2
  done
}

# step WORD post|delete ENTRY: makes it or goes back.
step() {
  [[ -z $SIGNAL ]] || go_back "$INTERRUPTED" "interrupted by $SIGNAL"
  if ! change "$2" "$3"; then
    if [[ $1 == park && $STATUS == 404 ]]; then
      go_back "$REFUSED" "this Okapi refuses entries of modules it does not know, so there can be no rehearsal and no record; use the binary with --no-parking"
    fi
    go_back "$OKAPI_FAILED" "$(refusal "$1 $(show "$3")")"
  fi
  say "ok   $1 $(show "$3")"
}

# The way from what is there to the goal, one {op, entry} a line. Adds come first: at no time may the module be without an
# entry. An entry whose address changed is bridged. What somebody else has added meanwhile is left alone.
way_back() {
  jq -c --null-input --argjson now "$ENTRIES" --argjson goal "${GOAL:-$FOUND}" --argjson touched "$TOUCHED" \
    --argjson records "$RECORDS" --argjson parked "$PARKED_BEFORE" --arg back "$INSTANCE-moving-back" --arg forth "$INSTANCE-moving" '
    def plain: {srvcId, instId, url};
    def ids: map(.instId);
    def ours: .instId as $i | $touched | index($i);
    ($now | map(plain)) as $now | ($goal | map(plain)) as $goal
    | [$goal[] | select(ours) | select(.instId as $i | $now | ids | index($i) | not)] as $missing
    | [$goal[] | select(ours) | . as $w | $now[] | select(.instId == $w.instId and .url != $w.url) | [., $w]] as $changed
    | (($missing | length) + ([$goal[] | select(. as $g | $now | index([$g]))] | length) > 0) as $safe
    | [$missing[] | {op: "post", entry: .}]
      + [$changed[] | . as [$there, $wanted] | ($wanted | .instId = $back) as $bridge
         | (if $safe then empty else {op: "post", entry: $bridge} end),
           {op: "delete", entry: $there}, {op: "post", entry: $wanted},
           (if $safe then empty else {op: "delete", entry: $bridge} end)]
      + [$now[] | select(ours or .instId == $back or .instId == $forth)
         | select(.instId as $i | $goal | ids | index($i) | not) | {op: "delete", entry: .}]
      + [$records[] | select(ours) | select(.instId as $i | $parked | ids | index($i) | not) | {op: "delete", entry: .}]
    | .[]'
}

# go_back CODE WORDS: puts the entries back that were found, takes out what this run added, and ends.
go_back() {
  local code=$1 words=$2 until=$((SECONDS + PUT_BACK_FOR)) todo op item state='the entries are as they were'
  SIGNAL=''
  trap '' TERM INT
  [[ -z $GOAL ]] || state='the entry that does not work was taken out'
  say "FAIL $words"
  while :; do
    if view 0; then
      todo=$(way_back)
      if [[ -z $todo ]]; then
        printf 'error: %s; %s\n' "$words" "$state" >&2
        exit "$code"
      fi
      while read -r item; do
        op=$(jq -r .op <<<"$item")
        item=$(jq -c .entry <<<"$item")
        "$op" "$item"
        succeeded || break
        say "back $op $(show "$item")"
      done <<<"$todo"
    fi
    ((SECONDS < until)) ||
      die "$NEEDS_HANDS" "$words; the entries could not be put back. Look at GET /_/discovery/modules and POST what is missing of: $(jq -c 'map(del(.nodeId))' <<<"$FOUND")"
    sleep 0.2
  done
}

# ---- checks ---------------------------------------------------------------------------------------------------------

# draws PLACES: how many looks at random, until each place was met but for one chance in a million.
draws() {
  awk -v p="$1" -v floor="$SAMPLES" 'BEGIN {
    n = 0; missed = p
    if (p > 1) while (missed > 0.000001 && n < 1000) { missed *= 1 - 1 / p; n++ }
    print (n > floor) ? n : floor
  }'
}

health_path() { printf '/_/discovery/health/%s/%s' "$(uri "$(jq -r .srvcId <<<"$1")")" "$(uri "$(jq -r .instId <<<"$1")")"; }

# health PATH: has the Okapi pod that answers ask one instance; sets REASON when it is not reached.
health() {
  api GET "$1"
  if succeeded && [[ $BODY =~ \"healthStatus\"[[:space:]]*:[[:space:]]*true ]]; then
    return 0
  fi
  REASON="$STATUS: $(jq -r '.healthMessage // empty' <<<"$BODY" 2>/dev/null || printf '%.300s' "$BODY")"
  return 1
}

# await_health ENTRY SECONDS: until enough answers in a row were good; a pod that is not reached starts it anew.
await_health() {
  local wanted path good=0 until=$((SECONDS + $2)) news=$((SECONDS + 10))
  wanted=$(draws "$PODS")
  path=$(health_path "$1")
  while ((good < wanted)); do
    [[ -z $SIGNAL ]] || go_back "$INTERRUPTED" "interrupted by $SIGNAL"
    if health "$path"; then
      good=$((good + 1))
    elif ! may_pass && ! succeeded; then
      go_back "$OKAPI_FAILED" "$(refusal health)"
    elif ((SECONDS >= until)); then
      go_back "$CHECK_FAILED" "Okapi does not reach $(show "$1"): $REASON ($good of $wanted checks in a row were good)"
    else
      if ((SECONDS >= news)); then
        news=$((SECONDS + 10))
        say "     still waiting: $good of $wanted good in a row, then $REASON"
      fi
      good=0
      sleep 0.1
    fi
  done
  say "ok   $(show "$1"): $wanted good answers in a row"
}

# see_health ENTRY: as await_health, but in use: one bad answer is a verdict, told by the status. A question that died on its
# way, perhaps in a broken sidecar, says nothing and is asked again.
see_health() {
  local wanted path n until
  wanted=$(draws "$PODS")
  path=$(health_path "$1")
  for ((n = 1; n <= wanted; n++)); do
    until=$((SECONDS + PATIENCE))
    until health "$path"; do
      [[ -z $SIGNAL ]] || return 1
      may_pass && ((SECONDS < until)) || return 1
      sleep 0.2
    done
  done
  say "ok   $(show "$1"): $wanted good answers"
}

# see_health_or_back ENTRY
see_health_or_back() {
  see_health "$1" && return 0
  [[ -z $SIGNAL ]] || go_back "$INTERRUPTED" "interrupted by $SIGNAL"
  go_back "$CHECK_FAILED" "Okapi does not reach $(show "$1"): $REASON"
}

# calls ENTRIES: real calls without a token, which Okapi never answers from its own token cache. Sets REASON.
calls() {
  local wanted n
  wanted=$(draws "$((PODS * $1))")
  printf 'X-Okapi-Tenant: %s\n' "${TENANT:-$LOGIN_TENANT}" >"$WORK/call-headers"
  for ((n = 1; n <= wanted; n++)); do
    if [[ -n $SIGNAL ]]; then
      REASON="interrupted by $SIGNAL"
      return 1
    fi
    request GET "$PROBE_PATH" "$WORK/call-headers"
    REASON="real call $n of $wanted, GET $PROBE_PATH for tenant ${TENANT:-$LOGIN_TENANT}, failed: $STATUS: ${BODY:0:300}"
    if [[ $BODY == *'No suitable module found for path'* ]]; then
      REASON="$REASON; name a path that this tenant has with --probe-path"
      return 1
    fi
    # Whatever the auth module says, it is its answer; what it said before is what it should say now.
    [[ $STATUS == 2* || $STATUS == 400 || $STATUS == 401 || $STATUS == 403 ]] || return 1
    BASELINE=${BASELINE:-$STATUS}
    if [[ $STATUS != "$BASELINE" ]]; then
      REASON="$REASON; before it was $BASELINE"
      return 1
    fi
  done
  say "ok   $wanted real calls for tenant ${TENANT:-$LOGIN_TENANT} were answered $BASELINE"
}

count() { jq length <<<"$1"; }
