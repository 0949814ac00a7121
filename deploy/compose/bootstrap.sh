#!/bin/sh
# Makes a FOLIO of the containers: modules, discovery, one tenant, one user, and the auth filter last.
# Can be run again, after a failure and after success. Needs only curl. Settings: OKAPI, DESCRIPTORS, TENANT, ADMIN_PASSWORD, and the module ids
# AUTHTOKEN, USERS, PERMISSIONS, LOGIN (see docker-compose.yml).
set -eu

admin=99999999-9999-4999-8999-999999999999

# call METHOD PATH [TENANT]: one call to Okapi, its body from standard input. What is there already is fine; anything else that is no 2xx ends the script.
call() {
    answer=$(curl -sS -X "$1" -H "X-Okapi-Tenant: ${3:-supertenant}" -H 'Content-Type: application/json' -H 'Accept: */*' \
        -w '\n%{http_code}' --data-binary @- "$OKAPI$2")
    code=${answer##*
}
    body=${answer%
*}
    case "$code" in
        2??) echo "$1 $2: $code" ;;
        400 | 422)
            case "$body" in
                *already* | *10809* | *uplicate*) echo "$1 $2: there already" ;;
                *) echo "$1 $2: $code $body" >&2 && exit 1 ;;
            esac
            ;;
        *) echo "$1 $2: $code $body" >&2 && exit 1 ;;
    esac
}

until curl -sS -o /dev/null "$OKAPI/_/proxy/modules" 2> /dev/null; do
    echo "waiting for Okapi" && sleep 2
done

if curl -sSf -o /dev/null "$OKAPI/_/proxy/tenants/$TENANT/modules/$AUTHTOKEN" 2> /dev/null; then
    echo "the auth filter is enabled already: nothing to do"
    exit 0
fi

for module in "$PERMISSIONS" "$USERS" "$LOGIN" "$AUTHTOKEN"; do
    curl -sSf "$DESCRIPTORS/_/proxy/modules/$module" | call POST "/_/proxy/modules?check=false"
done

# mod-authtoken's entry is the sidecar, in Okapi's own network namespace; the sidecar knows where mod-authtoken is.
echo "{\"srvcId\": \"$AUTHTOKEN\", \"instId\": \"$AUTHTOKEN-auth-sidecar\", \"url\": \"http://127.0.0.1:8071\"}" | call POST /_/discovery/modules
echo "{\"srvcId\": \"$PERMISSIONS\", \"instId\": \"$PERMISSIONS\", \"url\": \"http://mod-permissions:8081\"}" | call POST /_/discovery/modules
echo "{\"srvcId\": \"$USERS\", \"instId\": \"$USERS\", \"url\": \"http://mod-users:8081\"}" | call POST /_/discovery/modules
echo "{\"srvcId\": \"$LOGIN\", \"instId\": \"$LOGIN\", \"url\": \"http://mod-login:8081\"}" | call POST /_/discovery/modules

echo "{\"id\": \"$TENANT\", \"name\": \"$TENANT\"}" | call POST /_/proxy/tenants
echo "[{\"id\": \"$PERMISSIONS\", \"action\": \"enable\"}, {\"id\": \"$USERS\", \"action\": \"enable\"}, {\"id\": \"$LOGIN\", \"action\": \"enable\"}]" \
    | call POST "/_/proxy/tenants/$TENANT/install"

# The user is made while nobody asks who may: the auth filter comes last.
echo "{\"id\": \"$admin\", \"username\": \"${TENANT}_admin\", \"active\": true, \"personal\": {\"lastName\": \"Admin\"}}" | call POST /users "$TENANT"
echo "{\"userId\": \"$admin\", \"password\": \"$ADMIN_PASSWORD\"}" | call POST /authn/credentials "$TENANT"
echo "{\"userId\": \"$admin\", \"permissions\": [\"perms.all\", \"users.all\", \"login.all\"]}" | call POST /perms/users "$TENANT"

echo "[{\"id\": \"$AUTHTOKEN\", \"action\": \"enable\"}]" | call POST "/_/proxy/tenants/$TENANT/install"
echo "done: log in as ${TENANT}_admin at $OKAPI/authn/login-with-expiry"
