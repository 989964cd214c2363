{{- define "brain.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- define "brain.labels" -}}
app.kubernetes.io/name: brain
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "brain.selector" -}}
app.kubernetes.io/name: brain
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}
{{- define "brain.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}
{{- define "brain.pod" -}}
# With service links, a Service named `brain` would set BRAIN_PORT and similar variables, which Brain reads as settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- define "brain.container" -}}
image: {{ include "brain.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
{{- define "brain.hosts" -}}
{{- $name := include "brain.name" . -}}
{{- $namespace := .Release.Namespace -}}
{{ $name }},{{ $name }}.{{ $namespace }},{{ $name }}.{{ $namespace }}.svc,{{ $name }}.{{ $namespace }}.svc.cluster.local
{{- range .Values.brain.allowedHosts }},{{ . }}{{ end }}
{{- end }}
{{- define "brain.url" -}}
http://{{ include "brain.name" . }}.{{ .Release.Namespace }}.svc:8080
{{- end }}
{{- define "brain.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
