{{/* What contradicts itself beyond the container: one line each, the library's first. */}}

{{- define "okapi-auth-sidecar.validate" -}}
{{- $errors := include "auth-sidecar-lib.errors" (dict "values" .Values "root" .) -}}
{{- range list "upstream" "injection" "scaling" "network" "monitoring" "registration" -}}
{{- $errors = printf "%s%s" $errors (include (printf "okapi-auth-sidecar.errors.%s" .) $) -}}
{{- end -}}
{{- with $errors | trim -}}
{{- fail (printf "\nthese values cannot work:\n%s" .) -}}
{{- end -}}
{{- end -}}

{{/* An upstream that is our own Service asks itself for ever; in all spellings that a pod's resolver knows. */}}
{{- define "okapi-auth-sidecar.errors.upstream" -}}
{{- if and (eq .Values.topology "standalone") .Values.config.upstreamUrl -}}
{{- $name := include "okapi-auth-sidecar.fullname" . -}}
{{- $inNamespace := printf "%s.%s" $name (include "okapi-auth-sidecar.namespace" .) -}}
{{- $host := (urlParse .Values.config.upstreamUrl).host | regexFind "^[^:]*" | lower | trimSuffix "." -}}
{{- if or (has $host (list $name $inNamespace (printf "%s.svc" $inNamespace))) (hasPrefix (printf "%s.svc." $inNamespace) $host) }}
- config.upstreamUrl {{ .Values.config.upstreamUrl }} is this chart's own Service: it would ask itself for ever
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "okapi-auth-sidecar.errors.injection" -}}
{{- if ne .Values.topology "standalone" -}}
{{- range list "initContainers" "extraContainers" -}}
{{- if get $.Values . }}
- {{ . }} belong to pods of the chart's own: in topology {{ $.Values.topology }} the pod is another chart's
{{- end -}}
{{- end -}}
{{- if .Values.autoscaling.enabled }}
- autoscaling is for pods of the chart's own: in topology {{ .Values.topology }} the pod is another chart's
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "okapi-auth-sidecar.errors.scaling" -}}
{{- $scaling := .Values.autoscaling -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- $least := ternary $scaling.minReplicas .Values.replicaCount $scaling.enabled | int -}}
{{- if $scaling.enabled -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) }}
- autoscaling.minReplicas {{ $scaling.minReplicas }} is more than maxReplicas {{ $scaling.maxReplicas }}
{{- end -}}
{{- if and $scaling.targetCPUUtilizationPercentage (not ((.Values.resources | default dict).requests | default dict).cpu) }}
- autoscaling.targetCPUUtilizationPercentage is a share of resources.requests.cpu, which is not set
{{- end -}}
{{- if and $scaling.targetMemoryUtilizationPercentage (not ((.Values.resources | default dict).requests | default dict).memory) }}
- autoscaling.targetMemoryUtilizationPercentage is a share of resources.requests.memory, which is not set
{{- end -}}
{{- if not (or $scaling.targetCPUUtilizationPercentage $scaling.targetMemoryUtilizationPercentage $scaling.metrics) }}
- autoscaling has no metric to go by
{{- end -}}
{{- end -}}
{{- if and (eq .Values.topology "standalone") $budget.enabled -}}
{{- $minimum := not (kindIs "invalid" $budget.minAvailable) -}}
{{- $maximum := not (kindIs "invalid" $budget.maxUnavailable) -}}
{{- if eq $minimum $maximum }}
- podDisruptionBudget needs exactly one of minAvailable and maxUnavailable; set the other to null
{{- end -}}
{{- if and $minimum (not (kindIs "string" $budget.minAvailable)) (ge (int $budget.minAvailable) $least) }}
- podDisruptionBudget.minAvailable {{ $budget.minAvailable }} of {{ $least }} replicas lets no node ever be drained
{{- end -}}
{{- if and $maximum (eq (toString $budget.maxUnavailable) "0") }}
- podDisruptionBudget.maxUnavailable 0 lets no node ever be drained
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "okapi-auth-sidecar.errors.network" -}}
{{- if and (include "okapi-auth-sidecar.networkPolicy" .) (eq .Values.topology "okapi") (not .Values.networkPolicy.extraIngress) }}
- networkPolicy.enabled in Okapi's pod binds Okapi itself: list what Okapi must accept (its port, Hazelcast) in networkPolicy.extraIngress
{{- end -}}
{{- if and (eq .Values.topology "standalone") (has (toString .Values.service.port) (list (toString .Values.service.adminPort))) }}
- service.port and service.adminPort are the same
{{- end -}}
{{- $traffic := .Values.service.trafficDistribution -}}
{{- if and (eq $traffic "PreferClose") (semverCompare "<1.31-0" .Capabilities.KubeVersion.Version) }}
- service.trafficDistribution PreferClose needs Kubernetes 1.31, and this is {{ .Capabilities.KubeVersion.Version }}
{{- end -}}
{{- if and (has $traffic (list "PreferSameZone" "PreferSameNode")) (semverCompare "<1.34-0" .Capabilities.KubeVersion.Version) }}
- service.trafficDistribution {{ $traffic }} needs Kubernetes 1.34, and this is {{ .Capabilities.KubeVersion.Version }}
{{- end -}}
{{- end -}}

{{- define "okapi-auth-sidecar.errors.monitoring" -}}
{{- $metrics := .Values.metrics -}}
{{- if and $metrics.serviceMonitor.enabled (ne .Values.topology "standalone") }}
- metrics.serviceMonitor finds nothing in topology {{ .Values.topology }}: there is no Service for the admin port. Use metrics.podMonitor
{{- end -}}
{{- if and $metrics.serviceMonitor.enabled (not .Values.service.adminPort) }}
- metrics.serviceMonitor needs service.adminPort
{{- end -}}
{{- if and $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled }}
- metrics.serviceMonitor and metrics.podMonitor would scrape every pod twice
{{- end -}}
{{- if and (or $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled) (include "auth-sidecar-lib.loopback" (include "okapi-auth-sidecar.settings" . | fromYaml).adminListen) }}
- metrics: config.adminListen is on loopback, where no Prometheus comes
{{- end -}}
{{- if and $metrics.prometheusRule.enabled (not $metrics.prometheusRule.defaultRules.enabled) (not $metrics.prometheusRule.additionalGroups) }}
- metrics.prometheusRule has no rule left
{{- end -}}
{{- if $metrics.prometheusRule.enabled -}}
{{- $known := list -}}
{{- range (.Files.Get "files/alerts.yaml" | fromYaml).groups -}}
{{- range .rules -}}
{{- $known = append $known .alert -}}
{{- end -}}
{{- end -}}
{{- range $metrics.prometheusRule.defaultRules.disabled -}}
{{- if not (has . $known) }}
- metrics.prometheusRule.defaultRules.disabled: there is no alert {{ . }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "okapi-auth-sidecar.errors.registration" -}}
{{- $registration := .Values.registration -}}
{{- if $registration.enabled -}}
{{- if eq .Values.topology "authtoken" }}
- registration is not needed in mod-authtoken's pod: Okapi's entry stays mod-authtoken's Service, which leads to the sidecar
{{- end -}}
{{- if and (eq .Values.topology "standalone") (include "auth-sidecar-lib.loopback" ((urlParse (include "okapi-auth-sidecar.registrationUrl" .)).host)) }}
- registration.url {{ $registration.url }} is Okapi's own pod, where no sidecar runs in topology standalone
{{- end -}}
{{- if and $registration.existingSecret (not $registration.tokenKey) (not (and $registration.userKey $registration.passwordKey)) }}
- registration.existingSecret needs tokenKey, or userKey and passwordKey
{{- end -}}
{{- if and $registration.caKey (not $registration.existingSecret) }}
- registration.caKey is a key of registration.existingSecret, which is not set
{{- end -}}
{{- if and $registration.unregister (not $registration.parking) (not $registration.directUrls) }}
- registration.unregister would not know what to put back: with parking off nothing is on record, so give registration.directUrls
{{- end -}}
{{- if le (int64 $registration.activeDeadlineSeconds) (include "auth-sidecar-lib.seconds" $registration.wait | int64) }}
- registration.activeDeadlineSeconds {{ $registration.activeDeadlineSeconds | int64 }} would end the Job before registration.wait ({{ $registration.wait }}) is over
{{- end -}}
{{- end -}}
{{- end -}}
