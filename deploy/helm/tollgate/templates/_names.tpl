{{/* Names and labels that several objects share. */}}

{{- define "tollgate.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The admin service's names within the cluster, each with those of its pods; then the operator's own. */}}
{{- define "tollgate.adminHosts" -}}
{{- $service := printf "%s-admin" (include "tollgate.name" .) -}}
{{- $below := printf "%s.%s" $service .Release.Namespace -}}
{{- $names := list -}}
{{- range list $service $below (printf "%s.svc" $below) (printf "%s.svc.cluster.local" $below) -}}
{{- $names = append (append $names .) (printf "*.%s" .) -}}
{{- end -}}
{{- join "," (concat $names (.Values.adminHosts | default list)) -}}
{{- end -}}

{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
