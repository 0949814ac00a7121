{{/* Names, labels and the context that the library's templates take. */}}

{{- define "okapi-auth-sidecar.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 50 characters, so that the suffixes of what belongs to it fit into 63. */}}
{{- define "okapi-auth-sidecar.fullname" -}}
{{- $name := include "okapi-auth-sidecar.name" . -}}
{{- $full := .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name)) -}}
{{- $full | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "okapi-auth-sidecar.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- define "okapi-auth-sidecar.selectorLabels" -}}
app.kubernetes.io/name: {{ include "okapi-auth-sidecar.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: auth-sidecar
{{- end -}}

{{/* The selector labels stay last and unchanged: commonLabels must not be able to cut a Service from its pods. */}}
{{- define "okapi-auth-sidecar.labels" -}}
{{- $own := dict "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") "app.kubernetes.io/managed-by" .Release.Service "app.kubernetes.io/version" .Chart.AppVersion "app.kubernetes.io/part-of" "folio" -}}
{{- $selector := include "okapi-auth-sidecar.selectorLabels" . | fromYaml -}}
{{- mergeOverwrite $own (deepCopy .Values.commonLabels) $selector | toYaml -}}
{{- end -}}

{{/*
The metadata of one object. A dict of
  root         the root context
  suffix       what follows the full name, or nothing
  namespace    another namespace, or nothing
  labels       more labels, which win, or nothing
  annotations  more annotations, which win, or nothing
*/}}
{{- define "okapi-auth-sidecar.metadata" -}}
name: {{ include "okapi-auth-sidecar.fullname" .root }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .namespace | default (include "okapi-auth-sidecar.namespace" .root) }}
labels: {{- mergeOverwrite (include "okapi-auth-sidecar.labels" .root | fromYaml) (.labels | default dict) | toYaml | nindent 2 }}
{{- with mergeOverwrite (deepCopy .root.Values.commonAnnotations) (.annotations | default dict) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "okapi-auth-sidecar.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "okapi-auth-sidecar.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* Pull secrets as Kubernetes wants them, from names or maps, those of all charts first. */}}
{{- define "okapi-auth-sidecar.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets -}}
{{- $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) -}}
{{- end -}}
{{- with $secrets | uniq -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the pods the container is in. */}}
{{- define "okapi-auth-sidecar.podSelector" -}}
{{- if eq .Values.topology "standalone" -}}
{{- include "okapi-auth-sidecar.selectorLabels" . -}}
{{- else -}}
{{- .Values.injection.podLabels | default (dict "app.kubernetes.io/name" (ternary "okapi" "mod-authtoken" (eq .Values.topology "okapi"))) | toYaml -}}
{{- end -}}
{{- end -}}

{{/* The ports and addresses in force, as YAML; see the library's settings template. */}}
{{- define "okapi-auth-sidecar.settings" -}}
{{- include "auth-sidecar-lib.settings" (dict "values" .Values "root" .) -}}
{{- end -}}

{{/* Whether the NetworkPolicy is rendered: "true" or nothing. */}}
{{- define "okapi-auth-sidecar.networkPolicy" -}}
{{- if ternary (eq .Values.topology "standalone") .Values.networkPolicy.enabled (kindIs "invalid" .Values.networkPolicy.enabled) -}}
true
{{- end -}}
{{- end -}}

{{/* Our entry in Okapi's discovery. 127.0.0.1, not localhost: each Okapi pod opens the connection itself, to its own sidecar. */}}
{{- define "okapi-auth-sidecar.registrationUrl" -}}
{{- if .Values.registration.url -}}
{{- .Values.registration.url -}}
{{- else if eq .Values.topology "okapi" -}}
http://{{ (include "okapi-auth-sidecar.settings" . | fromYaml).listen }}
{{- else -}}
http://{{ include "okapi-auth-sidecar.fullname" . }}.{{ include "okapi-auth-sidecar.namespace" . }}:{{ .Values.service.port }}
{{- end -}}
{{- end -}}
