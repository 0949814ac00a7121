{{/*
Which image runs. Context of every template in this chart: a dict of
  values  the sidecar's values (this chart's, or a dict of the same shape)
  root    the calling chart's root context
*/}}

{{/* Of this program, not of the chart that includes us: its .Chart.AppVersion is another program's. */}}
{{- define "auth-sidecar-lib.appVersion" -}}
0.1.0
{{- end -}}

{{/* A digest wins over a tag: it is the stronger promise of the two. */}}
{{- define "auth-sidecar-lib.image" -}}
{{- $image := .values.image | default dict -}}
{{- $global := (.root.Values.global | default dict).imageRegistry -}}
{{- $registry := $global | default $image.registry -}}
{{- $name := $image.repository -}}
{{- if $registry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" $registry) $name -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (toString ($image.tag | default (include "auth-sidecar-lib.appVersion" .))) -}}
{{- end -}}
{{- end -}}
