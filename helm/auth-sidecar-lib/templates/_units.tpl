{{/*
Texts with units as plain numbers, so that they can be compared. Each takes the text itself.
*/}}

{{/* Whole seconds, rounded up: "1500ms" is 2. */}}
{{- define "auth-sidecar-lib.seconds" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9]+" $text | int64 -}}
{{- $unit := regexReplaceAll "^[0-9]+" $text "" -}}
{{- if eq $unit "ms" -}}
{{- div (add $number 999) 1000 -}}
{{- else if eq $unit "s" -}}
{{- $number -}}
{{- else if eq $unit "m" -}}
{{- mul $number 60 -}}
{{- else if eq $unit "h" -}}
{{- mul $number 3600 -}}
{{- else -}}
{{- fail (printf "%q is not a duration: a whole number and ms, s, m or h" $text) -}}
{{- end -}}
{{- end -}}

{{/* Bytes of a Kubernetes quantity ("128Mi", "1G", 134217728) or of a size setting ("64MiB"). */}}
{{- define "auth-sidecar-lib.bytes" -}}
{{- $text := ternary (. | int64 | toString) (toString .) (or (kindIs "float64" .) (kindIs "int64" .) (kindIs "int" .)) -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $text | float64 -}}
{{- $unit := regexReplaceAll "^[0-9]+([.][0-9]+)?" $text "" | trimSuffix "B" -}}
{{- $factors := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- if not (hasKey $factors $unit) -}}
{{- fail (printf "%q is not a size this chart can read: a number and Ki, Mi, Gi, k, M or G" $text) -}}
{{- end -}}
{{- mulf $number (get $factors $unit) | int64 -}}
{{- end -}}

{{/* The port of a listen address: "[::]:8072" is 8072. */}}
{{- define "auth-sidecar-lib.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{/* "true" for an address that only its own pod can reach. */}}
{{- define "auth-sidecar-lib.loopback" -}}
{{- if regexMatch "^(127[.]|localhost|\\[?::1\\]?(:|$))" . -}}
true
{{- end -}}
{{- end -}}

{{/* The port an http or https URL leads to, the scheme's own when it names none. */}}
{{- define "auth-sidecar-lib.urlPort" -}}
{{- $url := urlParse . -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}
