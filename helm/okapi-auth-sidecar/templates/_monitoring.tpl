{{/* What the two monitors have in common; takes the monitor's values. */}}
{{- define "okapi-auth-sidecar.endpoint" -}}
honorLabels: {{ .honorLabels }}
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
The rule groups, as YAML. The alerts' own texts hold templates of Prometheus, so they pass through as data and are
never rendered by Helm.
*/}}
{{- define "okapi-auth-sidecar.ruleGroups" -}}
{{- $values := .Values.metrics.prometheusRule -}}
{{- $defaults := $values.defaultRules -}}
{{- $groups := list -}}
{{- if $defaults.enabled -}}
{{- range (.Files.Get "files/alerts.yaml" | fromYaml).groups -}}
{{- $rules := list -}}
{{- range .rules -}}
{{- if not (has .alert $defaults.disabled) -}}
{{- $rule := deepCopy . -}}
{{- with $defaults.additionalRuleLabels -}}
{{- $_ := set $rule "labels" (mergeOverwrite ($rule.labels | default dict) .) -}}
{{- end -}}
{{- if and $defaults.runbookUrlPrefix ($rule.annotations | default dict).runbook_url -}}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s%s" $defaults.runbookUrlPrefix $rule.annotations.runbook_url) -}}
{{- end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (merge (dict "rules" $rules) .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- concat $groups $values.additionalGroups | toYaml -}}
{{- end -}}
