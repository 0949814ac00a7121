{{/* Patches for what another chart owns. */}}

{{- define "okapi-auth-sidecar.owner" -}}
{{- .Values.injection.name | default (ternary "okapi" "mod-authtoken" (eq .Values.topology "okapi")) -}}
{{- end -}}

{{- define "okapi-auth-sidecar.patch" -}}
{{- $sidecar := dict "values" .Values "root" . -}}
{{- $native := include "auth-sidecar-lib.native" $sidecar -}}
apiVersion: apps/v1
kind: {{ .Values.injection.kind }}
metadata:
  name: {{ include "okapi-auth-sidecar.owner" . }}
spec:
  template:
    spec:
      {{- if or .Values.terminationGracePeriodSeconds (not $native) }}
      terminationGracePeriodSeconds: {{ include "auth-sidecar-lib.gracePeriod" $sidecar }}
      {{- end }}
      {{- if $native }}
      initContainers:
        {{- include "auth-sidecar-lib.initContainers" $sidecar | nindent 8 }}
      {{- else }}
      containers:
        {{- include "auth-sidecar-lib.containers" $sidecar | nindent 8 }}
        {{- if eq .Values.topology "authtoken" }}
        # The pod is ready when both are: so mod-authtoken's health counts without the sidecar looking after it.
        - name: {{ .Values.injection.container | default "mod-authtoken" }}
          readinessProbe:
            httpGet:
              path: /admin/health
              port: {{ include "auth-sidecar-lib.urlPort" .Values.config.upstreamUrl }}
            periodSeconds: 5
            timeoutSeconds: 2
            failureThreshold: 3
          # Both get SIGTERM at once, and the sidecar still needs mod-authtoken while it drains.
          lifecycle: {{- include "auth-sidecar-lib.upstreamLifecycle" $sidecar | nindent 12 }}
        {{- end }}
      {{- end }}
      {{- with include "okapi-auth-sidecar.imagePullSecrets" . }}
      imagePullSecrets: {{- . | nindent 8 }}
      {{- end }}
      {{- with include "auth-sidecar-lib.volumes" $sidecar }}
      volumes: {{- . | nindent 8 }}
      {{- end }}
{{- end -}}

{{/*
mod-authtoken's Service, turned to the sidecar, as a JSON patch: a strategic merge finds a port by number and protocol,
and kustomize silently drops one that names no protocol. The test stops everything if the first port is another. The
target is a number: not every network plugin knows the names of ports.
*/}}
{{- define "okapi-auth-sidecar.servicePatch" -}}
- op: test
  path: /spec/ports/0/port
  value: {{ .Values.injection.servicePort }}
- op: add
  path: /spec/ports/0/targetPort
  value: {{ include "auth-sidecar-lib.port" (include "okapi-auth-sidecar.settings" . | fromYaml).listen }}
{{- end -}}
