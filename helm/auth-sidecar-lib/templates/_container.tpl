{{/*
The container, and where in a pod it goes. A chart that injects it writes

  {{- $sidecar := dict "values" (index .Values "auth-sidecar-lib") "root" $ }}
  {{- include "auth-sidecar-lib.validate" $sidecar }}
  initContainers: {{- include "auth-sidecar-lib.initContainers" $sidecar | nindent 8 }}
  containers:
    - name: okapi
    {{- include "auth-sidecar-lib.containers" $sidecar | nindent 8 }}
  volumes: {{- include "auth-sidecar-lib.volumes" $sidecar | nindent 8 }}

and of the two lists exactly one holds the container.
*/}}

{{/* One container, a map. */}}
{{- define "auth-sidecar-lib.container" -}}
{{- $values := .values -}}
{{- $settings := include "auth-sidecar-lib.settings" . | fromYaml -}}
name: {{ $values.containerName }}
image: {{ include "auth-sidecar-lib.image" . | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
{{- if include "auth-sidecar-lib.native" . }}
restartPolicy: Always
{{- end }}
{{- with $values.extraArgs }}
args: {{- tpl (toYaml .) $.root | nindent 2 }}
{{- end }}
env: {{- include "auth-sidecar-lib.env" . | trim | nindent 2 }}
{{- with $values.extraEnvFrom }}
envFrom: {{- tpl (toYaml .) $.root | nindent 2 }}
{{- end }}
ports:
  {{- if not (include "auth-sidecar-lib.loopback" $settings.listen) }}
  - name: auth-filter
    containerPort: {{ include "auth-sidecar-lib.port" $settings.listen }}
    protocol: TCP
  {{- end }}
  - name: auth-admin
    containerPort: {{ include "auth-sidecar-lib.port" $settings.adminListen }}
    protocol: TCP
{{- range $probe := list "startupProbe" "livenessProbe" "readinessProbe" "lifecycle" "resources" "securityContext" }}
{{- with get $values $probe }}
{{ $probe }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with include "auth-sidecar-lib.volumeMounts" . }}
volumeMounts: {{- . | nindent 2 }}
{{- end }}
terminationMessagePolicy: FallbackToLogsOnError
{{- end -}}

{{/* A list with the container, when it is a native sidecar; else an empty text. */}}
{{- define "auth-sidecar-lib.initContainers" -}}
{{- if include "auth-sidecar-lib.native" . -}}
- {{ include "auth-sidecar-lib.container" . | nindent 2 | trim }}
{{- end -}}
{{- end -}}

{{/* A list with the container, when it is a plain one; else an empty text. */}}
{{- define "auth-sidecar-lib.containers" -}}
{{- if not (include "auth-sidecar-lib.native" .) -}}
- {{ include "auth-sidecar-lib.container" . | nindent 2 | trim }}
{{- end -}}
{{- end -}}

{{- define "auth-sidecar-lib.volumeMounts" -}}
{{- $ca := .values.upstreamCa | default dict -}}
{{- $mounts := list -}}
{{- if (.values.adminToken | default dict).existingSecret -}}
{{- $mounts = append $mounts (dict "name" "auth-sidecar-admin-token" "mountPath" "/etc/auth-sidecar/admin-token" "readOnly" true) -}}
{{- end -}}
{{- if or $ca.existingSecret $ca.existingConfigMap -}}
{{- $mounts = append $mounts (dict "name" "auth-sidecar-upstream-ca" "mountPath" "/etc/auth-sidecar/upstream-ca" "readOnly" true) -}}
{{- end -}}
{{- with concat $mounts (.values.extraVolumeMounts | default list) -}}
{{- tpl (toYaml .) $.root -}}
{{- end -}}
{{- end -}}

{{/*
The volumes the container mounts, for the pod. Their files are readable for everybody in the container: an injected
container cannot ask for an fsGroup, and nobody but the program is in there.
*/}}
{{- define "auth-sidecar-lib.volumes" -}}
{{- $ca := .values.upstreamCa | default dict -}}
{{- $token := .values.adminToken | default dict -}}
{{- $volumes := list -}}
{{- with $token.existingSecret -}}
{{- $items := list (dict "key" $token.key "path" $token.key) -}}
{{- $volumes = append $volumes (dict "name" "auth-sidecar-admin-token" "secret" (dict "secretName" . "defaultMode" 292 "items" $items)) -}}
{{- end -}}
{{- $items := list (dict "key" $ca.key "path" $ca.key) -}}
{{- if $ca.existingSecret -}}
{{- $volumes = append $volumes (dict "name" "auth-sidecar-upstream-ca" "secret" (dict "secretName" $ca.existingSecret "defaultMode" 292 "items" $items)) -}}
{{- else if $ca.existingConfigMap -}}
{{- $volumes = append $volumes (dict "name" "auth-sidecar-upstream-ca" "configMap" (dict "name" $ca.existingConfigMap "defaultMode" 292 "items" $items)) -}}
{{- end -}}
{{- with concat $volumes (.values.extraVolumes | default list) -}}
{{- tpl (toYaml .) $.root -}}
{{- end -}}
{{- end -}}

{{/*
What mod-authtoken's own container needs beside the sidecar: the sidecar drains through it, so it must outlast the
sidecar's last call. `sleep` comes with mod-authtoken's image; the sleep action of Kubernetes is not there before 1.30.
*/}}
{{- define "auth-sidecar-lib.upstreamLifecycle" -}}
preStop:
  exec:
    command: [sleep, {{ add (include "auth-sidecar-lib.shutdownSeconds" . | int64) 2 | toString | quote }}]
{{- end -}}
