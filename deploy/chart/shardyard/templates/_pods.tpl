{{/* What every pod of the chart has in common: who it runs as, what it may do, where it may run. */}}
{{- define "shardyard.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.security.uid }}
runAsGroup: {{ .Values.security.gid }}
fsGroup: {{ .Values.security.gid }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "shardyard.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Capability and shell command that let a pod of Ray's lock memory. Both take the values of head or worker. */}}
{{- define "shardyard.lockCapability" -}}
{{- if (.lockedMemory).capability }}add: [IPC_LOCK]{{ end }}
{{- end -}}

{{- define "shardyard.lockLimit" -}}
{{- with (.lockedMemory).limit }}ulimit -l {{ . }} || { echo "lockedMemory.limit: it exceeds the container runtime limit, $(ulimit -Hl)" >&2; exit 1; }; {{ end }}
{{- end -}}

{{/* Takes (list $ values-of-the-component). */}}
{{- define "shardyard.scheduling" -}}
{{- with (index . 1).nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (index . 1).tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (index . 1).affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with (index . 1).priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with (index . 1).runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with (index . 0).Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "shardyard.databaseEnv" -}}
- name: SHARDYARD_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "shardyard.databaseSecret" . | quote }}
      key: {{ .Values.database.secret.key | quote }}
{{- end -}}

{{/* The storage of checkpoints and code: how a container mounts it, its volume, and the credentials of a bucket. */}}
{{- define "shardyard.storageMount" -}}
{{- if not .Values.storage.uri }}- {name: storage, mountPath: /var/lib/shardyard/checkpoints}{{ end }}
{{- end -}}

{{- define "shardyard.storageVolume" -}}
{{- if not .Values.storage.uri }}
- name: storage
  persistentVolumeClaim:
    claimName: {{ include "shardyard.claim" . | quote }}
{{- end }}
{{- end -}}

{{/* The key that encrypts users' secrets: API servers use it to store them, dispatchers to read them. */}}
{{- define "shardyard.secretsKeyEnv" -}}
- name: SHARDYARD_SECRETS_KEY_PATH
  value: /run/secrets/secrets-key/key
{{- end -}}

{{- define "shardyard.secretsKeyMount" -}}
- {name: secrets-key, mountPath: /run/secrets/secrets-key, readOnly: true}
{{- end -}}

{{- define "shardyard.secretsKeyVolume" -}}
- name: secrets-key
  secret:
    secretName: {{ include "shardyard.secretsKeySecret" . | quote }}
    defaultMode: 0400
    items:
      - {key: {{ include "shardyard.secretsKeyEntry" . | quote }}, path: key}
{{- end -}}

{{/* What every pod has besides: variables, mounts and volumes of the values. */}}
{{- define "shardyard.extraEnv" -}}
{{- range $name, $value := .Values.extraEnv }}
- name: {{ $name | quote }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "shardyard.extraMounts" -}}
{{- with .Values.extraVolumeMounts }}{{ toYaml . }}{{ end }}
{{- end -}}

{{- define "shardyard.extraVolumes" -}}
{{- with .Values.extraVolumes }}{{ toYaml . }}{{ end }}
{{- end -}}

{{- define "shardyard.storageEnv" -}}
{{- with .Values.storage.credentialsSecret }}
- secretRef:
    name: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* One pod of Ray's. Takes a dict: root, part (the values of head or worker), container, image, ports, gpus. */}}
{{- define "shardyard.rayPod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "shardyard.selector" (list $root .container) | nindent 4 }}
  {{- with .part.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "shardyard.serviceAccount" $root | quote }}
  enableServiceLinks: false
  automountServiceAccountToken: false
  securityContext:
    {{- include "shardyard.podSecurity" $root | nindent 4 }}
  terminationGracePeriodSeconds: 60
  {{- with include "shardyard.scheduling" (list $root .part) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    - name: {{ .container }}
      image: {{ .image | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      # tini reaps: a raylet that died and stays a zombie would keep its workers alive. KubeRay gives its command, quotes and all, as a
      # variable. No login shell, which would set a PATH of its own.
      command: [/usr/bin/tini, -g, --, /bin/bash, -c]
      args: ['ulimit -n 65536; {{ include "shardyard.lockLimit" .part }}eval "exec $KUBERAY_GEN_RAY_START_CMD"']
      ports:
        {{- toYaml .ports | nindent 8 }}
      env:
        - name: HOME
          value: /tmp
        {{- range $name, $value := $root.Values.ray.env }}
        - name: {{ $name | quote }}
          value: {{ $value | quote }}
        {{- end }}
        {{- with include "shardyard.extraEnv" $root | trim }}
        {{- . | nindent 8 }}
        {{- end }}
      {{- with include "shardyard.storageEnv" $root | trim }}
      envFrom:
        {{- . | nindent 8 }}
      {{- end }}
      resources:
        requests:
          {{- toYaml .part.resources.requests | nindent 10 }}
        limits:
          {{- toYaml .part.resources.limits | nindent 10 }}
          {{- if .gpus }}
          nvidia.com/gpu: {{ .gpus }}
          {{- end }}
      startupProbe:
        {{- include "shardyard.rayProbe" . | nindent 8 }}
        periodSeconds: 5
        failureThreshold: 60
      readinessProbe:
        {{- include "shardyard.rayProbe" . | nindent 8 }}
        periodSeconds: 10
        failureThreshold: 3
      livenessProbe:
        {{- include "shardyard.rayProbe" . | nindent 8 }}
        periodSeconds: 10
        failureThreshold: 12
      securityContext:
        {{- include "shardyard.containerSecurity" $root | nindent 8 }}
        {{- with include "shardyard.lockCapability" .part | trim }}
          {{- . | nindent 10 }}
        {{- end }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: shared-memory, mountPath: /dev/shm}
        {{- with include "shardyard.storageMount" $root | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        - {name: cache, mountPath: /var/cache/shardyard}
        {{- with include "shardyard.extraMounts" $root | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .part.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    - name: shared-memory
      emptyDir:
        medium: Memory
        sizeLimit: {{ .part.sharedMemory }}
    {{- with include "shardyard.storageVolume" $root | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    - name: cache
      emptyDir:
        {{- if .part.cacheSize }}
        sizeLimit: {{ .part.cacheSize }}
        {{- else }} {}
        {{- end }}
    {{- with include "shardyard.extraVolumes" $root | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .part.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Ray's agent answers this one without the token. */}}
{{- define "shardyard.rayProbe" -}}
httpGet:
  path: /api/local_raylet_healthz
  port: agent
timeoutSeconds: 5
{{- end -}}
