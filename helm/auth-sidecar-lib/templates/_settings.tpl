{{/*
Which settings the program gets. What the values leave open stays open, and the program's own default holds, but for
those whose right value follows from the pod: addresses, drain delay, the bound on the cache.
*/}}

{{/* "true" when the container becomes a native sidecar: an init container that keeps running. */}}
{{- define "auth-sidecar-lib.native" -}}
{{- $wish := toString .values.nativeSidecar -}}
{{- if eq .values.topology "okapi" -}}
{{- if eq $wish "true" -}}
true
{{- else if and (ne $wish "false") (semverCompare ">=1.29-0" .root.Capabilities.KubeVersion.Version) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
How long the program keeps serving after SIGTERM. A native sidecar is told only when Okapi has ended, so there is
nothing left to wait for. A plain container is told together with Okapi and must outlast it. Over a Service, callers
need time to hear that this endpoint is gone.
*/}}
{{- define "auth-sidecar-lib.drainDelay" -}}
{{- $set := (.values.config | default dict).drainDelay -}}
{{- if $set -}}
{{- $set -}}
{{- else if ne .values.topology "okapi" -}}
10s
{{- else if include "auth-sidecar-lib.native" . -}}
0s
{{- else -}}
15s
{{- end -}}
{{- end -}}

{{/* The program's own default is repeated here, because the grace period is computed from it. */}}
{{- define "auth-sidecar-lib.shutdownTimeout" -}}
{{- (.values.config | default dict).shutdownTimeout | default "10s" -}}
{{- end -}}

{{/* Seconds between SIGTERM and the end of the last call. */}}
{{- define "auth-sidecar-lib.shutdownSeconds" -}}
{{- add (include "auth-sidecar-lib.drainDelay" . | include "auth-sidecar-lib.seconds") (include "auth-sidecar-lib.shutdownTimeout" . | include "auth-sidecar-lib.seconds") -}}
{{- end -}}

{{/*
The pod's grace period in seconds. With a native sidecar it is Okapi's own affair, so Kubernetes' 30 seconds are assumed.
*/}}
{{- define "auth-sidecar-lib.gracePeriod" -}}
{{- if .values.terminationGracePeriodSeconds -}}
{{- .values.terminationGracePeriodSeconds | int64 -}}
{{- else if eq .values.topology "authtoken" -}}
60
{{- else if and (eq .values.topology "okapi") (not (include "auth-sidecar-lib.native" .)) -}}
45
{{- else -}}
30
{{- end -}}
{{- end -}}

{{/*
Half of the memory limit, as a size; nothing without a limit: the downward API would then tell the node's memory. The
other half is for connections, buffers and the allocator's slack.
*/}}
{{- define "auth-sidecar-lib.cacheMaxBytes" -}}
{{- $limit := ((.values.resources | default dict).limits | default dict).memory -}}
{{- if $limit -}}
{{- $half := div (include "auth-sidecar-lib.bytes" $limit | int64) 2 -}}
{{- if eq (mod $half 1048576) 0 -}}
{{- printf "%dMiB" (div $half 1048576) -}}
{{- else -}}
{{- printf "%dKiB" (div $half 1024) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Every setting that is handed to the program, as YAML: values key to value. */}}
{{- define "auth-sidecar-lib.settings" -}}
{{- $values := .values -}}
{{- $set := dict -}}
{{- range $key, $value := ($values.config | default dict) -}}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) -}}
{{- $_ := set $set $key $value -}}
{{- end -}}
{{- end -}}
{{- $defaults := dict "listen" (ternary "127.0.0.1:8071" "0.0.0.0:8071" (eq $values.topology "okapi")) "adminListen" "0.0.0.0:8072" "drainDelay" (include "auth-sidecar-lib.drainDelay" .) -}}
{{- with include "auth-sidecar-lib.cacheMaxBytes" . -}}
{{- $_ := set $defaults "cacheMaxBytes" . -}}
{{- end -}}
{{- if ($values.adminToken | default dict).existingSecret -}}
{{- $_ := set $defaults "adminTokenFile" (printf "/etc/auth-sidecar/admin-token/%s" $values.adminToken.key) -}}
{{- end -}}
{{- $ca := $values.upstreamCa | default dict -}}
{{- if or $ca.existingSecret $ca.existingConfigMap -}}
{{- $_ := set $defaults "upstreamCaFile" (printf "/etc/auth-sidecar/upstream-ca/%s" $ca.key) -}}
{{- end -}}
{{- merge $set $defaults | toYaml -}}
{{- end -}}

{{/* The name of a values key as the program's environment knows it: cacheTtl is AUTH_SIDECAR_CACHE_TTL. */}}
{{- define "auth-sidecar-lib.envName" -}}
{{- printf "AUTH_SIDECAR_%s" (snakecase . | upper) -}}
{{- end -}}

{{/* Whole numbers without an exponent: Helm keeps 1000000 as a float and would print 1e+06. */}}
{{- define "auth-sidecar-lib.envValue" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- . | int64 | toString -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{- define "auth-sidecar-lib.env" -}}
{{- range $key, $value := include "auth-sidecar-lib.settings" . | fromYaml }}
- name: {{ include "auth-sidecar-lib.envName" $key }}
  value: {{ include "auth-sidecar-lib.envValue" $value | quote }}
{{- end }}
{{- with .values.extraEnv }}
{{ tpl (toYaml .) $.root }}
{{- end }}
{{- end -}}
