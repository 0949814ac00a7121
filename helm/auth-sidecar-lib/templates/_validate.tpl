{{/*
What contradicts itself. The schema refuses what is wrong alone; here is what is wrong together. All of it is
reported at once.
*/}}

{{/* Stops the rendering when anything is wrong. */}}
{{- define "auth-sidecar-lib.validate" -}}
{{- with include "auth-sidecar-lib.errors" . | trim -}}
{{- fail (printf "\nthese values cannot work:\n%s" .) -}}
{{- end -}}
{{- end -}}

{{/* One line for each contradiction, or an empty text. */}}
{{- define "auth-sidecar-lib.errors" -}}
{{- $values := .values -}}
{{- $settings := include "auth-sidecar-lib.settings" . | fromYaml -}}
{{- include "auth-sidecar-lib.errors.upstream" (dict "values" $values "settings" $settings) -}}
{{- include "auth-sidecar-lib.errors.addresses" (dict "values" $values "settings" $settings) -}}
{{- include "auth-sidecar-lib.errors.lifetimes" (dict "values" $values "settings" $settings "root" .root) -}}
{{- include "auth-sidecar-lib.errors.secrets" (dict "values" $values "settings" $settings) -}}
{{- include "auth-sidecar-lib.errors.environment" (dict "values" $values "settings" $settings) -}}
{{- end -}}

{{- define "auth-sidecar-lib.errors.upstream" -}}
{{- $topology := .values.topology -}}
{{- $url := .settings.upstreamUrl | default "" -}}
{{- if not $url }}
- config.upstreamUrl is missing: where mod-authtoken answers, e.g. {{ ternary "http://127.0.0.1:8081" "http://mod-authtoken" (eq $topology "authtoken") }}
{{- else -}}
{{- $upstream := urlParse $url -}}
{{- $port := include "auth-sidecar-lib.urlPort" $url -}}
{{- $local := include "auth-sidecar-lib.loopback" $upstream.host -}}
{{- if and $local (has $port (list (include "auth-sidecar-lib.port" .settings.listen) (include "auth-sidecar-lib.port" .settings.adminListen))) }}
- config.upstreamUrl {{ $url }} is the sidecar itself: it would ask itself for ever
{{- end -}}
{{- if and (eq $topology "authtoken") (not $local) }}
- config.upstreamUrl {{ $url }} must be mod-authtoken in the same pod (http://127.0.0.1:8081): its Service leads back to the sidecar
{{- end -}}
{{- if and (eq $topology "standalone") $local }}
- config.upstreamUrl {{ $url }} is the sidecar's own pod, where no mod-authtoken runs in this topology
{{- end -}}
{{- if and .settings.upstreamCaFile (hasPrefix "http://" $url) }}
- upstreamCa is set, but config.upstreamUrl {{ $url }} is not https
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "auth-sidecar-lib.errors.addresses" -}}
{{- $topology := .values.topology -}}
{{- $listen := .settings.listen -}}
{{- $admin := .settings.adminListen -}}
{{- $probed := false -}}
{{- range list "startupProbe" "livenessProbe" "readinessProbe" -}}
{{- if (get $.values . | default dict).httpGet -}}
{{- $probed = true -}}
{{- end -}}
{{- end -}}
{{- if eq (include "auth-sidecar-lib.port" $listen) (include "auth-sidecar-lib.port" $admin) }}
- config.listen and config.adminListen share a port: a filter call can carry any path, so health and purge need their own
{{- end -}}
{{- if and (eq $topology "okapi") (not (include "auth-sidecar-lib.loopback" $listen)) }}
- config.listen {{ $listen }} leaves Okapi's pod: whoever reaches that port can announce revocations. Keep it on 127.0.0.1, or use another topology to serve other pods
{{- end -}}
{{- if and (ne $topology "okapi") (include "auth-sidecar-lib.loopback" $listen) }}
- config.listen {{ $listen }} is on loopback, so Okapi cannot reach it from its own pod
{{- end -}}
{{- if and $probed (include "auth-sidecar-lib.loopback" $admin) }}
- config.adminListen {{ $admin }} is on loopback, but kubelet's HTTP probes come in through the pod's address: use 0.0.0.0, or exec probes with [/okapi-auth-sidecar, healthcheck]
{{- end -}}
{{- range $key, $address := dict "listen" $listen "adminListen" $admin -}}
{{- $port := include "auth-sidecar-lib.port" $address | int -}}
{{- $taken := list 1099 5005 8081 8082 -}}
{{- if or (and (ne $topology "standalone") (has $port $taken)) (and (eq $topology "okapi") (or (and (ge $port 9130) (le $port 9230)) (has $port (list 5701 5702 5703 9930 54327)))) }}
- config.{{ $key }} {{ $address }} takes a port that {{ ternary "Okapi, its modules or Hazelcast use" "mod-authtoken or Java's tools use" (eq $topology "okapi") }}
{{- end -}}
{{- if or (lt $port 1024) (gt $port 65535) }}
- config.{{ $key }} {{ $address }} needs a port from 1024 to 65535: the program has no right to others
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "auth-sidecar-lib.errors.lifetimes" -}}
{{- $context := dict "values" .values "root" .root -}}
{{- $config := .values.config | default dict -}}
{{- $wish := toString .values.nativeSidecar -}}
{{- $grace := include "auth-sidecar-lib.gracePeriod" $context | int64 -}}
{{- $needed := add (include "auth-sidecar-lib.shutdownSeconds" $context | int64) 5 -}}
{{- if ge $needed $grace }}
- config.drainDelay ({{ include "auth-sidecar-lib.drainDelay" $context }}) + config.shutdownTimeout ({{ include "auth-sidecar-lib.shutdownTimeout" $context }}) + 5s to spare is {{ $needed }}s, which must be less than terminationGracePeriodSeconds ({{ $grace }}): the last calls would be killed
{{- end -}}
{{- if and (ne .values.topology "okapi") (eq $wish "true") }}
- nativeSidecar: true is for Okapi's pod only: {{ ternary "mod-authtoken would end before its sidecar has drained" "alone, it is the pod's only container" (eq .values.topology "authtoken") }}
{{- end -}}
{{- if and (eq $wish "true") (semverCompare "<1.28-0" .root.Capabilities.KubeVersion.Version) }}
- nativeSidecar: true needs Kubernetes 1.29 (1.28 behind a feature gate), and this is {{ .root.Capabilities.KubeVersion.Version }}
{{- end -}}
{{- range $key, $value := .settings -}}
{{- if and (kindIs "string" $value) (regexMatch "^[0-9]+(ms|s|m|h)$" $value) -}}
{{- $limit := ternary (list 600 "10m") (list 86400 "24h") (has $key (list "cacheTtl" "cacheStaleIfError")) -}}
{{- if gt (include "auth-sidecar-lib.seconds" $value | int64) (first $limit | int64) }}
- config.{{ $key }} {{ $value }} is over the program's limit of {{ last $limit }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .settings.cacheMaxBytes -}}
{{- if lt (include "auth-sidecar-lib.bytes" . | int64) 1048576 }}
- config.cacheMaxBytes {{ . }} is less than the program's least, 1MiB{{ if not $config.cacheMaxBytes }}: it is half of resources.limits.memory{{ end }}
{{- end -}}
{{- end -}}
{{- $limit := ((.values.resources | default dict).limits | default dict).memory -}}
{{- if and $limit (ge (include "auth-sidecar-lib.bytes" .settings.cacheMaxBytes | int64) (include "auth-sidecar-lib.bytes" $limit | int64)) }}
- config.cacheMaxBytes {{ .settings.cacheMaxBytes }} does not fit in the memory limit {{ $limit }}: the kernel would kill the program before the bound holds
{{- end -}}
{{- end -}}

{{- define "auth-sidecar-lib.errors.secrets" -}}
{{- $config := .values.config | default dict -}}
{{- $ca := .values.upstreamCa | default dict -}}
{{- if and (.values.adminToken | default dict).existingSecret $config.adminTokenFile }}
- adminToken.existingSecret and config.adminTokenFile both name the admin port's token
{{- end -}}
{{- if and $ca.existingSecret $ca.existingConfigMap }}
- upstreamCa.existingSecret and upstreamCa.existingConfigMap both name the trust anchor
{{- end -}}
{{- if and (or $ca.existingSecret $ca.existingConfigMap) $config.upstreamCaFile }}
- upstreamCa and config.upstreamCaFile both name the trust anchor
{{- end -}}
{{- end -}}

{{- define "auth-sidecar-lib.errors.environment" -}}
{{- $names := list -}}
{{- range $key, $_ := .settings -}}
{{- $names = append $names (include "auth-sidecar-lib.envName" $key) -}}
{{- end -}}
{{- range $entry := .values.extraEnv | default list -}}
{{- $name := $entry.name | default "" -}}
{{- if has $name $names }}
- extraEnv {{ $name }} is set already: by config, or by what this chart derives
{{- end -}}
{{- if or (hasPrefix "AUTH_SIDECAR_PORT" $name) (hasPrefix "AUTH_SIDECAR_SERVICE_" $name) }}
- extraEnv {{ $name }} is a name Kubernetes gives to Services, which the program ignores
{{- end -}}
{{- if and (eq $name "AUTH_SIDECAR_ADMIN_TOKEN") (hasKey $entry "value") }}
- extraEnv AUTH_SIDECAR_ADMIN_TOKEN shows the token to everyone who can read the pod: use adminToken.existingSecret
{{- end -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
