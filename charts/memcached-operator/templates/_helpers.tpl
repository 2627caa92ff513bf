{{/* What an operator for one namespace has in the place of cluster-wide kinds. */}}
{{- define "memcached-operator.role" -}}
{{ if .Values.namespaced }}Role{{ else }}ClusterRole{{ end }}
{{- end }}
{{- define "memcached-operator.namespace" -}}
{{ if .Values.namespaced }}
namespace: {{ .Release.Namespace }}
{{- end }}
{{- end }}
