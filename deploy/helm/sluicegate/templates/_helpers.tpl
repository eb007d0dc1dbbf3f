{{- define "sluicegate.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "sluicegate.selector" -}}
app.kubernetes.io/name: sluicegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluicegate.labels" -}}
{{ include "sluicegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "sluicegate.files" -}}
{{- range $file, $text := . }}
  {{ $file | quote }}: |
    {{- $text | trim | nindent 4 }}
{{- end }}
{{- end -}}

{{- define "sluicegate.check" -}}
{{- if and (not .Values.rules) (not .Values.existingConfigMap) -}}
{{- fail "no rules: add --set-file 'rules.shop\\.yaml=FILE', or set existingConfigMap to a ConfigMap of rules files" -}}
{{- end -}}
{{- if and .Values.rules .Values.existingConfigMap -}}
{{- fail "both rules and existingConfigMap are set: remove one of them" -}}
{{- end -}}
{{- with .Values.gateway -}}
{{- if and .config (not .enabled) -}}
{{- fail "gateway.config is set and gateway.enabled is not: set gateway.enabled=true" -}}
{{- end -}}
{{- if .enabled -}}
{{- if not .config -}}
{{- fail "no file of the gateway: add --set-file gateway.config=FILE" -}}
{{- end -}}
{{- $config := fromYaml .config -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "gateway.config is not YAML: %s" $config.Error) -}}
{{- end -}}
{{- if $config.rules -}}
{{- fail "gateway.config has `rules`: remove them there; the rules are those of the chart" -}}
{{- end -}}
{{- $listen := toJson $config.listen -}}
{{- range .ports -}}
{{- if not (regexMatch (printf "(0\\.0\\.0\\.0|\\[::\\]):%d\"" (int .containerPort)) $listen) -}}
{{- fail (printf "gateway.config does not listen on 0.0.0.0:%d, which gateway.ports names: add it to `listen`" (int .containerPort)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (eq .Values.store.url "memory") -}}
{{- fail (printf "replicas is %d and store.url is `memory`: every replica would count separately and admit the whole limit; set store.url to a Redis, or replicas to 1" (int .Values.replicas)) -}}
{{- end -}}
{{- if and .Values.store.passwordSecret (eq .Values.store.url "memory") -}}
{{- fail "store.passwordSecret is set and store.url is `memory`: set store.url to a Redis" -}}
{{- end -}}
{{- end -}}
