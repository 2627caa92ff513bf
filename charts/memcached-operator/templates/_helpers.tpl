{{/* An operator for one namespace has Roles instead of ClusterRoles. */}}
{{- define "memcached-operator.role" -}}
{{ if .Values.namespaced }}Role{{ else }}ClusterRole{{ end }}
{{- end }}
{{- define "memcached-operator.namespace" -}}
{{ if .Values.namespaced }}
namespace: {{ .Release.Namespace }}
{{- end }}
{{- end }}

{{/* What follows the names of objects that have no namespace: releases of one name may be in several namespaces. */}}
{{- define "memcached-operator.suffix" -}}
{{ if .Values.namespaced }}.{{ .Release.Namespace }}{{ end }}
{{- end }}

{{/* What the names of all objects begin with: the release's name, if it says what it is of. A Service's name has 63
characters at most, of which 27 follow. */}}
{{- define "memcached-operator.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- $full := printf "%s-%s" .Release.Name $name }}
{{- if .Values.fullnameOverride }}
{{- $full = .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- $full = .Release.Name }}
{{- end }}
{{- if gt (len $full) 36 }}
{{- fail (printf "the objects' names would begin with %s, of %d characters: set fullnameOverride to at most 36" $full (len $full)) }}
{{- end }}
{{- $full }}
{{- end }}

{{/* The labels that select the manager's pods. */}}
{{- define "memcached-operator.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "memcached-operator.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "memcached-operator.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (printf "%s-controller-manager" (include "memcached-operator.fullname" .)) }}
{{- end }}

{{/* Where pods of the chart run. */}}
{{- define "memcached-operator.scheduling" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* The security context of the chart's pods. The image names its user, so that a platform can assign another one. */}}
{{- define "memcached-operator.podSecurityContext" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- define "memcached-operator.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
