{{/* Names and labels. KubeRay cuts the name of a cluster's Service at 50 letters, so a name leaves room for its endings. */}}
{{- define "shardyard.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 37 | trimSuffix "-" -}}
{{- end -}}

{{/* Services are named after it, so it begins with a letter and has no dots. */}}
{{- define "shardyard.fullname" -}}
{{- $name := default .Release.Name .Values.fullnameOverride -}}
{{- if not (or .Values.fullnameOverride (contains (include "shardyard.name" .) .Release.Name)) -}}
{{- $name = printf "%s-%s" .Release.Name (include "shardyard.name" .) -}}
{{- end -}}
{{- $name = $name | trunc 37 | trimSuffix "-" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "no Service can have a name that begins with %q: set fullnameOverride to a letter, then letters, digits and hyphens" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "shardyard.rayCluster" -}}
{{- printf "%s-ray" (include "shardyard.fullname" .) -}}
{{- end -}}

{{- define "shardyard.rayAddress" -}}
{{- if .Values.ray.create -}}
{{- printf "ray://%s-head-svc:10001" (include "shardyard.rayCluster" .) -}}
{{- else -}}
{{- .Values.ray.address -}}
{{- end -}}
{{- end -}}

{{- define "shardyard.rayTokenSecret" -}}
{{- default (include "shardyard.rayCluster" .) .Values.ray.tokenSecret -}}
{{- end -}}

{{- define "shardyard.databaseSecret" -}}
{{- default (printf "%s-database" (include "shardyard.fullname" .)) .Values.database.secret.name -}}
{{- end -}}

{{- define "shardyard.secretsKeySecret" -}}
{{- default (printf "%s-secrets-key" (include "shardyard.fullname" .)) .Values.secretsKey.existingSecret -}}
{{- end -}}

{{/* The chart's own Secret always has the same key: a change of it would make a new one, and lose the secrets. */}}
{{- define "shardyard.secretsKeyEntry" -}}
{{- ternary .Values.secretsKey.key "key" (ne .Values.secretsKey.existingSecret "") -}}
{{- end -}}

{{- define "shardyard.tokenSecret" -}}
{{- default (printf "%s-token" (include "shardyard.fullname" .)) .Values.api.token.existingSecret -}}
{{- end -}}

{{/* As with the secrets' key: the chart's own Secret always has the same key. */}}
{{- define "shardyard.tokenEntry" -}}
{{- ternary .Values.api.token.key "token" (ne .Values.api.token.existingSecret "") -}}
{{- end -}}

{{/* The groups of workers, as JSON: each one's name, image, and values, which are those of `ray.worker` unless it has its own. */}}
{{- define "shardyard.workerGroups" -}}
{{- $groups := list (dict "name" "worker" "image" (include "shardyard.rayImage" .) "part" .Values.ray.worker) -}}
{{- $names := list "worker" -}}
{{- range $group := .Values.ray.workerGroups -}}
{{- if has $group.name $names -}}
{{- fail (printf "ray.workerGroups: two groups of workers have the name %q; the first is named worker" $group.name) -}}
{{- end -}}
{{- $names = append $names $group.name -}}
{{- $part := deepCopy $.Values.ray.worker -}}
{{- range $key, $value := omit $group "name" "image" -}}
{{- $_ := set $part $key $value -}}
{{- end -}}
{{- $image := include "shardyard.rayImage" $ -}}
{{- if $group.image -}}
{{- with $group.image -}}
{{- $image = ternary (printf "%s@%s" .repository .digest) (printf "%s:%s" .repository .tag) (ne (default "" .digest) "") -}}
{{- end -}}
{{- $_ := set $part "labels" (merge (dict "shardyard.io/image" $group.name) $part.labels) -}}
{{- end -}}
{{- $groups = append $groups (dict "name" $group.name "image" $image "part" $part) -}}
{{- end -}}
{{- range $groups -}}
{{- if or (hasKey .part.resources.requests "nvidia.com/gpu") (hasKey .part.resources.limits "nvidia.com/gpu") -}}
{{- fail (printf "the group of workers %s has nvidia.com/gpu in its resources: remove it and set the number of GPUs in gpus" .name) -}}
{{- end -}}
{{- end -}}
{{- toJson $groups -}}
{{- end -}}

{{/* What the cluster is to have, as JSON: as the settings say, else the workers, with the label by which jobs choose an image. KubeRay
gives Ray whole CPUs of the limit, rounded up. */}}
{{- define "shardyard.capacity" -}}
{{- if not (kindIs "invalid" .Values.settings.capacity) -}}
{{- toJson .Values.settings.capacity -}}
{{- else if .Values.ray.create -}}
{{- $nodes := list -}}
{{- range include "shardyard.workerGroups" . | fromJsonArray -}}
{{- $cpu := toString .part.resources.limits.cpu -}}
{{- $cpus := ternary (divf (trimSuffix "m" $cpu | float64) 1000) (float64 $cpu) (hasSuffix "m" $cpu) | ceil | int -}}
{{- $group := dict "nodes" .part.replicas "cpus" $cpus "gpus" .part.gpus -}}
{{- with get (default dict .part.labels) "shardyard.io/image" -}}
{{- $_ := set $group "image" . -}}
{{- end -}}
{{- $nodes = append $nodes $group -}}
{{- end -}}
{{- toJson $nodes -}}
{{- end -}}
{{- end -}}

{{/* Names of the API's Service, from within its namespace to the whole cluster's. */}}
{{- define "shardyard.hosts" -}}
{{- $api := printf "%s-api" (include "shardyard.fullname" .) -}}
{{- $space := printf "%s.%s" $api .Release.Namespace -}}
{{- concat (list $api $space (printf "%s.svc" $space) (printf "%s.svc.cluster.local" $space)) .Values.api.allowedHosts | join "," -}}
{{- end -}}

{{- define "shardyard.claim" -}}
{{- if .Values.storage.create -}}
{{- printf "%s-storage" (include "shardyard.fullname" .) -}}
{{- else -}}
{{- .Values.storage.existingClaim -}}
{{- end -}}
{{- end -}}

{{- define "shardyard.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "shardyard.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "shardyard.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "shardyard.rayImage" -}}
{{- with .Values.ray.image -}}
{{- if or .repository .tag -}}
{{- printf "%s:%s" (default $.Values.image.repository .repository) (coalesce .tag $.Values.image.tag $.Chart.AppVersion) -}}
{{- else -}}
{{- include "shardyard.image" $ -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What selects a pod: these never change over the life of a release. Takes (list $ component). */}}
{{- define "shardyard.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "shardyard.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "shardyard.labels" -}}
{{- $root := index . 0 -}}
{{ include "shardyard.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}
