{{/* What the Jobs and the test pod have in common: our own image, as locked down as the program itself. */}}

{{/* Labels of a pod that belongs to the release but must not be taken for the program by its Service. */}}
{{- define "okapi-auth-sidecar.jobLabels" -}}
app.kubernetes.io/name: {{ include "okapi-auth-sidecar.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The pod's settings around its containers. */}}
{{- define "okapi-auth-sidecar.jobPod" -}}
restartPolicy: Never
serviceAccountName: default
automountServiceAccountToken: false
enableServiceLinks: false
{{- with include "okapi-auth-sidecar.imagePullSecrets" . }}
imagePullSecrets: {{- . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
One hook Job that talks to Okapi. A dict of
  root     the root context
  command  register or unregister
  hooks    when
*/}}
{{- define "okapi-auth-sidecar.okapiJob" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $registration := $values.registration -}}
{{- $secret := $registration.existingSecret -}}
{{- $keys := dict "username-file" $registration.userKey "password-file" $registration.passwordKey -}}
{{- if $registration.tokenKey -}}
{{- $keys = dict "okapi-token-file" $registration.tokenKey -}}
{{- end -}}
{{- with $registration.caKey -}}
{{- $_ := set $keys "okapi-ca-file" . -}}
{{- end -}}
{{- $hook := dict "helm.sh/hook" .hooks "helm.sh/hook-weight" "5" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
{{- $annotations := mergeOverwrite (deepCopy $registration.annotations) $hook -}}
apiVersion: batch/v1
kind: Job
metadata: {{- include "okapi-auth-sidecar.metadata" (dict "root" $root "suffix" .command "annotations" $annotations "labels" (dict "app.kubernetes.io/component" "auth-sidecar-registration")) | nindent 2 }}
spec:
  backoffLimit: {{ $registration.backoffLimit }}
  activeDeadlineSeconds: {{ $registration.activeDeadlineSeconds }}
  ttlSecondsAfterFinished: {{ $registration.ttlSecondsAfterFinished }}
  {{- if semverCompare ">=1.29-0" $root.Capabilities.KubeVersion.Version }}
  # A wrong command line, a refusal, and a discovery that could not be put back are no better the second time.
  podFailurePolicy:
    rules:
      - action: FailJob
        onExitCodes:
          containerName: {{ .command }}
          operator: In
          values: [2, 3, 6]
  {{- end }}
  template:
    metadata:
      labels: {{- mergeOverwrite (deepCopy $values.commonLabels) (deepCopy $registration.podLabels) (include "okapi-auth-sidecar.jobLabels" (dict "root" $root "component" "auth-sidecar-registration") | fromYaml) | toYaml | nindent 8 }}
    spec:
      {{- include "okapi-auth-sidecar.jobPod" $root | nindent 6 }}
      containers:
        - name: {{ .command }}
          image: {{ include "auth-sidecar-lib.image" (dict "values" $values "root" $root) | quote }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args:
            - {{ .command }}
            - --okapi-url={{ $registration.okapiUrl }}
            - --module-id={{ $registration.moduleId }}
            {{- with $registration.instanceId }}
            - --instance-id={{ . }}
            {{- end }}
            {{- with $registration.tenant }}
            - --tenant={{ . }}
            {{- end }}
            {{- with $registration.loginTenant }}
            - --login-tenant={{ . }}
            {{- end }}
            {{- with $registration.okapiPods }}
            - --okapi-pods={{ . }}
            {{- end }}
            {{- if eq .command "register" }}
            - --url={{ include "okapi-auth-sidecar.registrationUrl" $root }}
            - --wait={{ $registration.wait }}
            {{- if not $registration.parking }}
            - --no-parking
            {{- end }}
            {{- else }}
            - --restore
            {{- range $registration.directUrls }}
            - --direct-url={{ . }}
            {{- end }}
            {{- end }}
            - --output=json
            {{- if $secret }}
            {{- range $flag, $key := $keys }}
            - --{{ $flag }}=/etc/auth-sidecar/okapi/{{ $key }}
            {{- end }}
            {{- end }}
            {{- with $registration.extraArgs }}
            {{- tpl (toYaml .) $root | nindent 12 }}
            {{- end }}
          {{- with $registration.resources }}
          resources: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $values.securityContext }}
          securityContext: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- if $secret }}
          volumeMounts:
            - name: okapi-credentials
              mountPath: /etc/auth-sidecar/okapi
              readOnly: true
          {{- end }}
          terminationMessagePolicy: FallbackToLogsOnError
      {{- if $secret }}
      volumes:
        - name: okapi-credentials
          secret:
            secretName: {{ $secret }}
            defaultMode: 292
            items:
              {{- range $_, $key := $keys }}
              - key: {{ $key }}
                path: {{ $key }}
              {{- end }}
      {{- end }}
{{- end -}}
