"""The chart with a real Helm: what it renders is valid Kubernetes, safe by default, and a wrong value is refused."""

import gzip
import importlib.util
import itertools
import json
import os
import re
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from harness.patience import PATIENCE_S

from shardyard.service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart" / "shardyard"
Manifest = dict[str, Any]

PASSWORD = "correct-horse"
URL = f"postgresql+psycopg://shardyard:{PASSWORD}@database:5432/shardyard"
TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}

BUCKET = "s3://checkpoints/shardyard"
BUCKET_SECRET = [{"secretRef": {"name": "bucket"}}]

VALUES: dict[str, Manifest] = {
    "default": {},
    "a bucket": {"storage": {"uri": BUCKET, "credentialsSecret": "bucket"}},
    "gpus": {
        "image": {"repository": "registry/shardyard", "tag": "1.2.3", "pullSecrets": [{"name": "pull"}]},
        "ray": {
            "image": {"tag": "1.2.3-cuda"},
            "worker": {
                "replicas": 4,
                "gpus": 8,
                "nodeSelector": {"accelerator": "h100"},
                "tolerations": [TOLERATION],
                "affinity": {"nodeAffinity": {}},
                "podAnnotations": {"team": "ml"},
                "extraVolumes": [{"name": "corpus", "persistentVolumeClaim": {"claimName": "corpus"}}],
                "extraVolumeMounts": [{"name": "corpus", "mountPath": "/corpus", "readOnly": True}],
            },
        },
    },
    "groups of workers": {
        "image": {"repository": "registry/shardyard", "tag": "1.2.3"},
        "ray": {
            "image": {"tag": "1.2.3-cuda"},
            "worker": {
                "replicas": 4,
                "gpus": 8,
                "labels": {"shardyard.io/rail": "su-1"},
                "nodeSelector": {"accelerator": "h100"},
            },
            "workerGroups": [
                {"name": "nemo", "replicas": 1, "gpus": 0, "image": {"repository": "registry/nemo", "tag": "2"}},
                {
                    "name": "a100",
                    "gpus": 4,
                    "nodeSelector": {"accelerator": "a100"},
                    "labels": {"shardyard.io/rail": "su-2"},
                },
            ],
        },
    },
    "own authority, priorities": {
        "extraEnv": {"PGSSLROOTCERT": "/etc/authority/ca.crt"},
        "extraVolumes": [{"name": "authority", "configMap": {"name": "authority"}}],
        "extraVolumeMounts": [{"name": "authority", "mountPath": "/etc/authority", "readOnly": True}],
        "api": {"priorityClassName": "api"},
        "dispatcher": {"priorityClassName": "dispatcher"},
        "ray": {
            "head": {"priorityClassName": "head"},
            "worker": {"priorityClassName": "worker", "runtimeClassName": "nvidia"},
            "workerGroups": [
                {
                    "name": "nemo",
                    "runtimeClassName": "",
                    "image": {"repository": "nemo", "digest": "sha256:" + "1" * 64},
                }
            ],
        },
        "settings": {"fault_injection": True},
    },
    "another Ray": {
        "ray": {"create": False, "address": "ray://elsewhere:10001", "tokenSecret": "token"},
        "image": {"digest": "sha256:" + "0" * 64},
    },
    "own secret, Redis": {
        "database": {"secret": {"create": True, "name": "", "key": "dsn", "url": URL}},
        "ray": {"redis": {"address": "redis://redis:6379", "passwordSecret": "redis"}, "tokenSecret": "token"},
        "networkPolicy": {"metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    },
    "as little as possible": {
        "migrate": {"enabled": False},
        "serviceAccount": {"create": False},
        "networkPolicy": {"enabled": False},
        "storage": {"create": False, "existingClaim": "checkpoints"},
        "api": {"replicas": 1, "service": {"type": "LoadBalancer", "annotations": {"a": "b"}}},
        "settings": {"max_ranks": 64},
    },
}


def run_helm(*arguments: str, values: Manifest | None = None) -> subprocess.CompletedProcess[str]:
    helm = ROOT / ".tools" / "helm"
    assert helm.exists(), "run `make tools` first: it puts Helm there"
    extra = [] if values is None else ["--values", "-"]
    given = json.dumps(values or {})
    return subprocess.run(
        [str(helm), *arguments, *extra], input=given, capture_output=True, text=True, timeout=60, check=False
    )


def render(values: Manifest, release: str = "train") -> list[Manifest]:
    done = run_helm("template", release, str(CHART), "--namespace", "ml", values=values)
    assert done.returncode == 0, done.stderr
    documents = yaml.load_all(done.stdout, yaml.CSafeLoader)
    return [document for document in documents if document]


@pytest.fixture(params=VALUES, scope="module")
def objects(request: pytest.FixtureRequest) -> list[Manifest]:
    """What each value set renders."""
    return render(VALUES[request.param])


def of_kind(objects: list[Manifest], kind: str) -> list[Manifest]:
    return [one for one in objects if one["kind"] == kind]


def templates(one: Manifest) -> Iterator[Manifest]:
    """The pod templates in `one`."""
    spec = one.get("spec", {})
    if one["kind"] == "RayCluster":
        yield spec["headGroupSpec"]["template"]
        yield from (group["template"] for group in spec["workerGroupSpecs"])
    elif "template" in spec:
        yield spec["template"]


def pods(objects: list[Manifest]) -> list[Manifest]:
    return list(itertools.chain.from_iterable(templates(one) for one in objects))


def containers(objects: list[Manifest]) -> list[Manifest]:
    return [container for pod in pods(objects) for container in pod["spec"]["containers"]]


def test_helm_lints_it() -> None:
    done = run_helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_core_objects_are_valid(objects: list[Manifest], version: str) -> None:
    for one in objects:
        if one["kind"] != "RayCluster":
            kubernetes_validate.validate(one, version, strict=True)


def test_core_objects_with_an_unknown_field_are_not_valid() -> None:
    deployment = of_kind(render({}), "Deployment")[0]
    deployment["spec"]["template"]["spec"]["containers"][0]["probe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="probe"):
        kubernetes_validate.validate(deployment, "1.30", strict=True)


@pytest.fixture(scope="module")
def ray_clusters() -> Any:
    """KubeRay's validator. The schema itself is checked once, which takes longer than all clusters."""
    text = gzip.decompress((ROOT / "tests" / "data" / "ray.io_rayclusters.yaml.gz").read_bytes())
    versions = yaml.load(text, yaml.CSafeLoader)["spec"]["versions"]
    served = next(version for version in versions if version["name"] == "v1")
    schema = strict(served["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    return validator(schema)


def strict(schema: Manifest) -> Manifest:
    """Kubernetes' structural schema as a JSON Schema that refuses unknown fields, as strict validation would."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    kept = {key: value for key, value in schema.items() if key in {"type", "enum", "pattern", "minimum", "maximum"}}
    if "properties" in schema:
        properties = schema["properties"]
        kept["properties"] = {name: strict(part) for name, part in properties.items()}
        kept["required"] = [name for name in schema.get("required", []) if "default" not in properties[name]]
        kept["additionalProperties"] = schema.get("x-kubernetes-preserve-unknown-fields", False)
    elif isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = strict(schema["additionalProperties"])
    if "items" in schema:
        kept["items"] = strict(schema["items"])
    if schema.get("nullable") and "type" in kept:
        kept["type"] = [kept["type"], "null"]
    return kept


def test_ray_cluster_is_valid(objects: list[Manifest], ray_clusters: Any) -> None:
    for cluster in of_kind(objects, "RayCluster"):
        ray_clusters.validate(cluster)


def test_ray_cluster_schema_refuses_what_kuberay_does_not_know(ray_clusters: Any) -> None:
    cluster = of_kind(render({}), "RayCluster")[0]
    cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["probe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="probe"):
        ray_clusters.validate(cluster)


def test_objects_have_names_of_their_own(objects: list[Manifest]) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for _, name in names)


def test_one_object_per_template() -> None:
    for template in (CHART / "templates").glob("*.yaml"):
        assert template.read_text().count("\nkind: ") == 1, template.name


def test_a_long_release_name_leaves_room_for_kuberays_endings() -> None:
    objects = render({}, release="a" * 53)
    cluster = of_kind(objects, "RayCluster")[0]["metadata"]["name"]
    address = of_kind(objects, "ConfigMap")[0]["data"]["SHARDYARD_RAY_ADDRESS"]
    assert len(f"{cluster}-head-svc") <= 50
    assert address == f"ray://{cluster}-head-svc:10001"


def test_selectors_find_their_pods(objects: list[Manifest]) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(objects)]
    for deployment in of_kind(objects, "Deployment"):
        wanted = deployment["spec"]["selector"]["matchLabels"].items()
        assert wanted <= deployment["spec"]["template"]["metadata"]["labels"].items()
        assert sum(wanted <= label.items() for label in labels) == 1
    for service in of_kind(objects, "Service"):
        assert sum(service["spec"]["selector"].items() <= label.items() for label in labels) == 1


def test_named_ports_exist(objects: list[Manifest]) -> None:
    names = {port["name"] for container in containers(objects) for port in container.get("ports", [])}
    for service in of_kind(objects, "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
    for policy in of_kind(objects, "NetworkPolicy"):
        rules = policy["spec"].get("ingress", [])
        assert {port["port"] for rule in rules for port in rule.get("ports", [])} <= names


def test_mounts_have_volumes_and_claims_exist(objects: list[Manifest]) -> None:
    claims = {one["metadata"]["name"] for one in of_kind(objects, "PersistentVolumeClaim")} | {"checkpoints", "corpus"}
    for pod in pods(objects):
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
        wanted = {v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "persistentVolumeClaim" in v}
        assert wanted <= claims


def test_config_map_holds_settings_and_nothing_else(objects: list[Manifest]) -> None:
    data = of_kind(objects, "ConfigMap")[0]["data"]
    names = {name.removeprefix("SHARDYARD_").lower() for name in data}
    assert names <= Settings.model_fields.keys()
    given = {name: data[f"SHARDYARD_{name.upper()}"] for name in names}
    settings = Settings.model_validate({**given, "database_url": URL})
    assert settings.storage == given["storage"]
    assert settings.lease_s == 15


def test_limits_of_logged_files_and_the_like_are_set_whole() -> None:
    """Helm has the numbers of a values file as floats."""
    given = {"artifact_file_bytes": 2 << 30, "artifact_bytes": (1 << 40) + 1, "artifact_files": 100_000}
    given |= {"scratch": "/fast", "reshard_s": 2_000_000, "cancel_s": 0.25}
    data = of_kind(render({"settings": given}), "ConfigMap")[0]["data"]
    assert {name: data[f"SHARDYARD_{name.upper()}"] for name in given} == {
        name: str(value) for name, value in given.items()
    }
    settings = Settings.model_validate(
        {name: data[f"SHARDYARD_{name.upper()}"] for name in given} | {"database_url": URL}
    )
    assert (settings.artifact_bytes, settings.scratch) == ((1 << 40) + 1, Path("/fast"))


@pytest.mark.parametrize(
    ("values", "capacity"),
    [
        ({}, [{"nodes": 2, "cpus": 4, "gpus": 0}]),
        (VALUES["gpus"], [{"nodes": 4, "cpus": 4, "gpus": 8}]),
        ({"ray": {"worker": {"resources": {"limits": {"cpu": "2500m"}}}}}, [{"nodes": 2, "cpus": 3, "gpus": 0}]),
        ({"settings": {"capacity": [{"nodes": 3, "gpus": 8}]}}, [{"nodes": 3, "gpus": 8}]),
        (
            {"ray": {"worker": {"gpus": 8}, "workerGroups": [{"name": "nemo", "replicas": 1, "gpus": 0}]}},
            [{"nodes": 2, "cpus": 4, "gpus": 8}, {"nodes": 1, "cpus": 4, "gpus": 0}],
        ),
        (
            VALUES["groups of workers"],
            [
                {"nodes": 4, "cpus": 4, "gpus": 8},
                {"nodes": 1, "cpus": 4, "gpus": 0, "image": "nemo"},
                {"nodes": 4, "cpus": 4, "gpus": 4},
            ],
        ),
        ({"settings": {"capacity": [{"nodes": 1, "image": "nemo"}]}}, [{"nodes": 1, "image": "nemo"}]),
        (VALUES["another Ray"], None),
    ],
)
def test_the_settings_say_what_the_workers_are_when_all_are_there(values: Manifest, capacity: list[Any] | None) -> None:
    data = of_kind(render(values), "ConfigMap")[0]["data"]
    assert (json.loads(data["SHARDYARD_CAPACITY"]) if "SHARDYARD_CAPACITY" in data else None) == capacity


def test_storage_is_mounted_where_the_settings_say(objects: list[Manifest]) -> None:
    data = of_kind(objects, "ConfigMap")[0]["data"]
    storage = {data["SHARDYARD_STORAGE"]} - {BUCKET}
    for cluster in of_kind(objects, "RayCluster"):
        for pod in templates(cluster):
            paths = {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
            assert {*storage, data["SHARDYARD_CACHE"], "/tmp", "/dev/shm"} <= paths
    for one in of_kind(objects, "Deployment"):  # for uploads of code
        paths = {mount["mountPath"] for mount in one["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
        assert storage <= paths


def test_a_bucket_needs_no_claim_and_only_pods_that_use_it_see_its_credentials() -> None:
    objects = render(VALUES["a bucket"])
    assert of_kind(objects, "PersistentVolumeClaim") == []
    for cluster in of_kind(objects, "RayCluster"):
        for pod in templates(cluster):
            assert pod["spec"]["containers"][0]["envFrom"] == BUCKET_SECRET
            assert not any("persistentVolumeClaim" in volume for volume in pod["spec"]["volumes"])
    for one in of_kind(objects, "Deployment"):
        pod = one["spec"]["template"]["spec"]
        assert BUCKET_SECRET[0] in pod["containers"][0]["envFrom"]
        assert not any("persistentVolumeClaim" in volume for volume in pod["volumes"])
    others = [one for one in objects if one["kind"] not in ("RayCluster", "ConfigMap", "Deployment")]
    assert others and "bucket" not in json.dumps(others)


def test_commands() -> None:
    by_name = {container["name"]: container for container in containers(render({}))}
    assert by_name["api"]["args"] == ["shardyard", "api"]
    assert by_name["dispatcher"]["args"] == ["shardyard", "dispatcher"]
    assert by_name["migrate"]["args"] == ["shardyard", "migrate"]


def test_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert chart["appVersion"] == project["version"]
    assert f"ray=={of_kind(render({}), 'RayCluster')[0]['spec']['rayVersion']}" in pins


def test_every_container_is_confined(objects: list[Manifest]) -> None:
    for pod in pods(objects):
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["enableServiceLinks"] is False, "a Service named shardyard would set SHARDYARD_PORT"
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod["spec"].keys()
        assert not any("hostPath" in volume for volume in pod["spec"]["volumes"])
    for container in containers(objects):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_every_container_has_requests_and_limits(objects: list[Manifest]) -> None:
    for container in containers(objects):
        for amounts in (container["resources"]["requests"], container["resources"]["limits"]):
            assert {"cpu", "memory"} <= amounts.keys()


def test_every_container_that_serves_has_probes(objects: list[Manifest]) -> None:
    serving = [container for container in containers(objects) if "ports" in container]
    assert serving
    for container in serving:
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports
    api = next(container for container in serving if container["name"] == "api")
    assert api["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert api["readinessProbe"]["httpGet"]["path"] == "/readyz"


def dispatcher_of(values: Manifest) -> tuple[Manifest, Manifest]:
    """The dispatcher's Deployment, and its container."""
    [spec] = [one["spec"] for one in of_kind(render(values), "Deployment") if "dispatcher" in one["metadata"]["name"]]
    [container] = spec["template"]["spec"]["containers"]
    return spec, container


def test_a_dispatcher_is_ready_with_its_heartbeat_and_restarted_without_a_new_one_for_long(tmp_path: Path) -> None:
    deployment, container = dispatcher_of({})
    assert deployment["minReadySeconds"] == 10, "one that starts and ends again does not replace another"
    [given] = [one["value"] for one in container["env"] if one["name"] == "SHARDYARD_HEARTBEAT_PATH"]
    assert Path(given).parent == Path("/tmp"), "which is writable"
    file = tmp_path / "heartbeat"

    def passes(probe: str) -> bool:
        command = [part.replace(given, str(file)) for part in container[probe]["exec"]["command"]]
        assert str(file) in command[-1]
        return subprocess.run(command, timeout=PATIENCE_S, check=False).returncode == 0

    assert (passes("readinessProbe"), passes("livenessProbe")) == (False, True), "it has not yet looked at its cluster"
    for age_minutes, alive in ((0, True), (12, True), (20, False)):
        file.touch()
        then = time.time() - 60 * age_minutes
        os.utime(file, (then, then))
        assert (passes("readinessProbe"), passes("livenessProbe")) == (True, alive), age_minutes


@pytest.mark.parametrize(
    ("values", "minutes"),
    [({}, 15), ({"migrate": {"deadlineSeconds": 3600}}, 71), ({"settings": {"poll_s": 1799.5}}, 45)],
)
def test_a_pass_over_the_queue_may_wait_for_the_migration_and_the_next_poll(values: Manifest, minutes: int) -> None:
    _, container = dispatcher_of(values)
    assert f"-mmin -{minutes})" in container["livenessProbe"]["exec"]["command"][-1]


def test_images_have_a_tag_or_digest(objects: list[Manifest]) -> None:
    for container in containers(objects):
        assert re.search(r":[\w.-]+$|@sha256:[0-9a-f]{64}$", container["image"]), container["image"]
        assert not container["image"].endswith(":latest")


def test_ray_runs_under_an_init_and_a_token(objects: list[Manifest]) -> None:
    for cluster in of_kind(objects, "RayCluster"):
        assert cluster["spec"]["authOptions"]["mode"] == "token"
        assert cluster["metadata"]["annotations"]["ray.io/overwrite-container-cmd"] == "true"
        for pod in templates(cluster):
            assert pod["spec"]["containers"][0]["command"][0] == "/usr/bin/tini"


def test_the_head_can_serve_ray_clients() -> None:
    """Without a fixed runtime environment port, Ray 2.60's client server refuses every `ray://` connection."""
    parameters = of_kind(render({}), "RayCluster")[0]["spec"]["headGroupSpec"]["rayStartParams"]
    assert int(parameters["runtime-env-agent-port"]) > 0


def test_rays_command_keeps_its_quotes(tmp_path: Path) -> None:
    """KubeRay gives it as one variable, in which resources and labels are quoted."""
    for cluster in of_kind(render({}), "RayCluster"):
        for pod in templates(cluster):
            container = pod["spec"]["containers"][0]
            shell = container["command"][container["command"].index("--") + 1 :]
            given = """printf '[%s]' --labels='a=b c' "--resources={\\"x\\": 1}" """
            env = {**os.environ, "KUBERAY_GEN_RAY_START_CMD": given}
            done = subprocess.run(
                [*shell, *container["args"]], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=True
            )
            assert done.stdout == """[--labels=a=b c][--resources={"x": 1}]"""


def test_workers_have_the_labels_by_which_gangs_are_placed() -> None:
    def group(values: Manifest) -> Manifest:
        (found,) = (one for one in render(values) if one["kind"] == "RayCluster")
        return found["spec"]["workerGroupSpecs"][0]  # type: ignore[no-any-return]

    labels = {"ray.io/gpu-domain": "rack-7", "ray.io/availability-zone": "eu-1a"}
    assert group({"ray": {"worker": {"labels": labels}}})["labels"] == labels
    assert "labels" not in group({})


def test_groups_of_workers_differ_in_what_they_name_and_jobs_choose_those_with_an_image() -> None:
    (cluster,) = of_kind(render(VALUES["groups of workers"]), "RayCluster")
    worker, nemo, other = cluster["spec"]["workerGroupSpecs"]
    assert [group["groupName"] for group in (worker, nemo, other)] == ["worker", "nemo", "a100"]
    assert [group["replicas"] for group in (worker, nemo, other)] == [4, 1, 4]
    assert nemo["labels"] == {"shardyard.io/image": "nemo", "shardyard.io/rail": "su-1"}
    assert (worker["labels"], other["labels"]) == ({"shardyard.io/rail": "su-1"}, {"shardyard.io/rail": "su-2"})
    pods = [group["template"]["spec"] for group in (worker, nemo, other)]
    images = [pod["containers"][0]["image"] for pod in pods]
    assert images == ["registry/shardyard:1.2.3-cuda", "registry/nemo:2", "registry/shardyard:1.2.3-cuda"]
    limits = [pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu") for pod in pods]
    assert limits == [8, None, 4], "no GPU is asked for by 0"
    assert [pod["nodeSelector"]["accelerator"] for pod in pods] == ["h100", "h100", "a100"]
    assert pods[1] | {"containers": 0} == pods[0] | {"containers": 0}, "what it does not name is that of ray.worker"


def test_gpu_workers_lock_as_much_memory_as_rdma_needs() -> None:
    """Off by default. A limit above the runtime's own ends the container with the reason."""

    def ray(values: Manifest) -> dict[str, Manifest]:
        return {one["name"]: one for one in containers(render(values)) if one["name"].startswith("ray-")}

    def adds(container: Manifest) -> object:
        return container["securityContext"]["capabilities"].get("add")

    given = {"ray": {"worker": {"gpus": 8, "lockedMemory": {"limit": "64", "capability": True}}}}
    plain, locking = ray({}), ray(given)
    assert all("ulimit -l" not in one["args"][0] and adds(one) is None for one in plain.values())
    assert "ulimit -l" not in locking["ray-head"]["args"][0] and adds(locking["ray-head"]) is None
    assert adds(locking["ray-worker"]) == ["IPC_LOCK"]
    env = {**os.environ, "KUBERAY_GEN_RAY_START_CMD": "bash -c 'ulimit -l'"}
    for hard, printed, said in (("128", "64\n", ""), ("32", "", "lockedMemory.limit: it exceeds")):
        limited = f"ulimit -l {hard}; {locking['ray-worker']['args'][0]}"
        alone = ["setpriv", "--bounding-set=-sys_resource", "bash", "-c", limited]
        done = subprocess.run(alone, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.stdout == printed and said in done.stderr, done


def selected(peer: Manifest, labels: Manifest) -> bool:
    """Whether a NetworkPolicy peer means a pod of the policy's namespace with these labels."""
    assert peer.keys() == {"podSelector"}, "of this namespace"
    selector = peer["podSelector"]
    asked = {"In": lambda e: labels.get(e["key"]) in e["values"], "NotIn": lambda e: labels.get(e["key"]) not in e["values"],
             "Exists": lambda e: e["key"] in labels, "DoesNotExist": lambda e: e["key"] not in labels}  # fmt: skip
    matched = selector.get("matchLabels", {}).items() <= labels.items()
    return matched and all(asked[e["operator"]](e) for e in selector.get("matchExpressions", []))


def test_users_code_on_ray_does_not_reach_the_api(objects: list[Manifest]) -> None:
    policies = [one for one in of_kind(objects, "NetworkPolicy") if one["metadata"]["name"].endswith("-api")]
    for policy in policies:
        [rule] = policy["spec"]["ingress"]
        assert [port["port"] for port in rule["ports"]] == ["http"]
        for cluster in of_kind(objects, "RayCluster"):
            for pod in templates(cluster):  # KubeRay adds the label
                labels = {**pod["metadata"]["labels"], "ray.io/cluster": cluster["metadata"]["name"]}
                assert not any(selected(peer, labels) for peer in rule["from"])
        assert any(selected(peer, {"app": "a client of the namespace"}) for peer in rule["from"])


@pytest.mark.parametrize("allowed", [False, True])
def test_api_servers_reach_all_ports_of_ray_where_users_may_open_terminals(allowed: bool) -> None:
    objects = render({"settings": {"exec": allowed}})
    [labels] = [
        one["spec"]["template"]["metadata"]["labels"]
        for one in of_kind(objects, "Deployment")
        if one["metadata"]["name"].endswith("-api")
    ]
    policies = [one for one in of_kind(objects, "NetworkPolicy") if "ray.io/cluster" in str(one["spec"]["podSelector"])]
    [rules] = [one["spec"]["ingress"] for one in policies]
    reaching = [rule for rule in rules if any(selected(peer, labels) for peer in rule["from"])]
    assert reaching == ([{"from": reaching[0]["from"]}] if allowed else [])


@pytest.mark.parametrize("allowed", [False, True])
def test_api_servers_of_other_releases_reach_ray_where_they_are_listed(allowed: bool) -> None:
    peer = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "west"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/component": "api"}},
    }
    objects = render({"settings": {"exec": allowed}, "networkPolicy": {"execFrom": [peer]}})
    policies = of_kind(objects, "NetworkPolicy")
    for policy in policies:
        kubernetes_validate.validate(policy, "1.30", strict=True)
    admitting = [rule for one in policies for rule in one["spec"].get("ingress", []) if peer in rule["from"]]
    assert [rule.keys() for rule in admitting] == ([{"from"}] if allowed else []), "on all ports"
    assert all(len(rule["from"]) == 2 for rule in admitting), "beside the release's own"
    pod = next(one for one in of_kind(objects, "Deployment") if one["metadata"]["name"].endswith("-api"))
    assert peer["podSelector"]["matchLabels"].items() <= pod["spec"]["template"]["metadata"]["labels"].items()


def test_who_reaches_the_api_is_the_operators_choice() -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}

    def rules(api_from: list[Manifest]) -> list[Manifest]:
        objects = render({"networkPolicy": {"apiFrom": api_from}})
        [policy] = [one for one in of_kind(objects, "NetworkPolicy") if one["metadata"]["name"].endswith("-api")]
        return policy["spec"].get("ingress", [])  # type: ignore[no-any-return]

    assert rules([]) == []
    assert [rule["from"] for rule in rules([peer])] == [[peer]]


def test_a_drain_leaves_one_that_serves() -> None:
    def budgets(values: Manifest) -> dict[str, Manifest]:
        objects = render(values)
        deployments = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "Deployment")}
        found = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "PodDisruptionBudget")}
        for name, budget in found.items():
            assert budget["selector"] == deployments[name]["selector"]
        return found

    assert {name: one["maxUnavailable"] for name, one in budgets({}).items()} == {"train-shardyard-api": 1}
    assert budgets({"api": {"replicas": 1}}) == {}  # or its node could never be drained
    assert budgets({"api": {"podDisruptionBudget": {"maxUnavailable": None}}}) == {}
    two = budgets({"dispatcher": {"replicas": 2, "podDisruptionBudget": {"maxUnavailable": "50%"}}})
    assert two["train-shardyard-dispatcher"]["maxUnavailable"] == "50%"


def test_kuberay_is_asked_for_in_the_version_that_takes_a_token_of_ones_own() -> None:
    """`authOptions.secretName` is there since 1.6.0."""
    for page in (CHART / "README.md", CHART / "values.yaml", ROOT / "docs" / "how-to" / "cluster.md"):
        assert set(re.findall(r"(\d+\.\d+\.\d+) or newer", page.read_text())) == {"1.6.0"}, page.name


def test_passwords_stand_in_secrets_alone() -> None:
    objects = render(VALUES["own secret, Redis"])
    holders = {one["kind"] for one in objects if PASSWORD in json.dumps(one)}
    assert holders == {"Secret"}


def test_workers_see_no_credentials_of_the_control_plane(objects: list[Manifest]) -> None:
    for cluster in of_kind(objects, "RayCluster"):
        assert "SHARDYARD_DATABASE_URL" not in json.dumps(cluster)
        for pod in templates(cluster):
            assert pod["spec"]["containers"][0].get("envFrom", BUCKET_SECRET) == BUCKET_SECRET


def test_checkpoints_and_secrets_outlive_the_release() -> None:
    """Secrets also outlive the value that made the chart create them, as pods use them further."""
    objects = render(VALUES["own secret, Redis"])
    kept = [one for kind in ("PersistentVolumeClaim", "Secret") for one in of_kind(objects, kind)]
    policies = {one["metadata"]["name"]: one["metadata"]["annotations"] for one in kept}
    assert "helm.sh/hook" in policies.pop("train-shardyard-migrate")
    assert len(policies) == 4 and {one["helm.sh/resource-policy"] for one in policies.values()} == {"keep"}


def test_the_pages_say_how_many_connections_an_upgrade_takes() -> None:
    """Twice those of all pods: a Deployment does not count pods that end against its surge."""
    pods = sum(one["spec"]["replicas"] for one in of_kind(render({}), "Deployment"))
    for page in (CHART / "README.md", ROOT / "docs" / "how-to" / "cluster.md"):
        text = " ".join(page.read_text().split())
        (each,) = re.findall(r"opens up to (\d+)", text)
        expected = f"use up to {pods * int(each)}, and up to {2 * pods * int(each)} while an upgrade replaces them"
        assert expected in text, page.name


def test_the_migration_comes_before_the_release_with_a_secret_of_its_own() -> None:
    objects = render(VALUES["own secret, Redis"])
    job = of_kind(objects, "Job")[0]
    reference = job["spec"]["template"]["spec"]["containers"][0]["env"][1]["valueFrom"]["secretKeyRef"]
    secret = next(one for one in of_kind(objects, "Secret") if one["metadata"]["name"] == reference["name"])
    assert secret["stringData"] == {"dsn": URL}
    assert reference["key"] == "dsn"
    weights = [int(one["metadata"]["annotations"]["helm.sh/hook-weight"]) for one in (secret, job)]
    assert weights == sorted(weights)
    assert all(one["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade" for one in (secret, job))


def test_gpus() -> None:
    by_name = {container["name"]: container for container in containers(render(VALUES["gpus"]))}
    assert by_name["ray-worker"]["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert "nvidia.com/gpu" not in by_name["ray-head"]["resources"]["limits"]
    assert by_name["ray-worker"]["image"] == "registry/shardyard:1.2.3-cuda"
    assert by_name["api"]["image"] == "registry/shardyard:1.2.3"


def test_all_pods_have_what_an_operator_adds() -> None:
    objects = render(VALUES["own authority, priorities"])
    assert {one["name"] for one in containers(objects)} == {"api", "dispatcher", "migrate", "ray-head", "ray-worker"}
    for pod in pods(objects):
        (container,) = pod["spec"]["containers"]
        assert {"name": "PGSSLROOTCERT", "value": "/etc/authority/ca.crt"} in container["env"]
        assert {"name": "authority", "mountPath": "/etc/authority", "readOnly": True} in container["volumeMounts"]
        assert {"name": "authority", "configMap": {"name": "authority"}} in pod["spec"]["volumes"]
        role = container["name"].removeprefix("ray-").replace("migrate", "dispatcher")
        assert pod["spec"]["priorityClassName"] == role
        nvidia = container["name"] == "ray-worker" and not container["image"].startswith("nemo@sha256:")
        assert pod["spec"].get("runtimeClassName") == ("nvidia" if nvidia else None)
    assert of_kind(objects, "ConfigMap")[0]["data"]["SHARDYARD_FAULT_INJECTION"] == "true"


def test_another_ray_cluster() -> None:
    objects = render(VALUES["another Ray"])
    assert not of_kind(objects, "RayCluster")
    assert of_kind(objects, "ConfigMap")[0]["data"]["SHARDYARD_RAY_ADDRESS"] == "ray://elsewhere:10001"
    dispatcher = next(one for one in of_kind(objects, "Deployment") if "dispatcher" in one["metadata"]["name"])
    secrets = [volume["secret"] for volume in dispatcher["spec"]["template"]["spec"]["volumes"] if "secret" in volume]
    assert [secret["secretName"] for secret in secrets] == ["train-shardyard-secrets-key", "token"]


def test_a_changed_setting_rolls_the_pods() -> None:
    def annotations(values: Manifest) -> list[str]:
        deployments = of_kind(render(values), "Deployment")
        return [one["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for one in deployments]

    assert not set(annotations({})) & set(annotations({"settings": {"lease_s": 30}}))


#: A pod's GPUs as Kubernetes has them.
GPU: Manifest = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": 8}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicaCount": 3}, "replicaCount"),
        ({"fullnameOverride": "train.v2"}, "fullnameOverride"),
        ({"nameOverride": "v2.1"}, '"train-v2.1": set fullnameOverride'),
        ({"api": {"replica": 3}}, "replica"),
        ({"settings": {"database_url": URL}}, "database_url"),
        ({"api": {"replicas": "two"}}, "api/replicas"),
        ({"api": {"service": {"type": "External"}}}, "api/service/type"),
        ({"api": {"resources": {"limits": {"cpu": "a lot"}}}}, "api/resources/limits/cpu"),
        ({"settings": {"lease_s": 0}}, "settings/lease_s"),
        ({"settings": {"max_ranks": 1.5}}, "settings/max_ranks"),
        ({"settings": {"cluster": "No. 2"}}, "settings/cluster"),
        ({"settings": {"artifact_bytes": 0}}, "settings/artifact_bytes"),
        ({"settings": {"scratch": "fast"}}, "settings/scratch"),
        ({"settings": {"operations_at_once": 65}}, "settings/operations_at_once"),
        ({"settings": {"capacity": [{"gpu": 8}]}}, "settings/capacity"),
        ({"security": {"uid": 0}}, "security/uid"),
        ({"ray": {"create": False}}, "ray/address"),
        ({"ray": {"address": "head:6379"}}, "ray/address"),
        ({"ray": {"worker": {"gpus": -1}}}, "ray/worker/gpus"),
        ({"ray": {"worker": {"resources": {"limits": GPU}}}}, "set the number of GPUs in gpus"),
        (
            {"ray": {"workerGroups": [{"name": "a", "resources": {"requests": GPU, "limits": GPU}}]}},
            "workers a has nvidia",
        ),
        ({"ray": {"workerGroups": [{"gpus": 1}]}}, "name"),
        ({"ray": {"workerGroups": [{"name": "a", "gpu": 1}]}}, "gpu"),
        ({"ray": {"workerGroups": [{"name": "a", "image": {"repository": "r"}}]}}, "tag"),
        ({"ray": {"workerGroups": [{"name": "a", "image": {"repository": "r", "digest": "1"}}]}}, "digest"),
        ({"ray": {"workerGroups": [{"name": "worker"}]}}, "two groups of workers"),
        ({"ray": {"worker": {"lockedMemory": {"limit": "1GiB"}}}}, "ray/worker/lockedMemory/limit"),
        ({"database": {"secret": {"create": True}}}, "database/secret/url"),
        ({"database": {"secret": {"create": True, "url": "sqlite:///x"}}}, "database/secret/url"),
        ({"database": {"secret": {"url": URL}}}, "database/secret/url"),
        ({"storage": {"create": False}}, "storage/existingClaim"),
        ({"storage": {"accessMode": "ReadWriteOncePod"}}, "storage/accessMode"),
        ({"storage": {"uri": "s3://me:geheim@bucket"}}, "storage/uri"),
        ({"image": {"tag": "not a tag"}}, "image/tag"),
        ({"api": {"podDisruptionBudget": {"maxUnavailable": 0}}}, "api/podDisruptionBudget/maxUnavailable"),
        ({"dispatcher": {"podDisruptionBudget": {"maxUnavailable": "none"}}}, "podDisruptionBudget/maxUnavailable"),
    ],
)
def test_wrong_values_are_refused(values: Manifest, said: str) -> None:
    done = run_helm("template", "train", str(CHART), values=values)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("release", ["7b", "train.v2"])
def test_a_release_after_which_no_service_can_be_named_is_refused(release: str) -> None:
    done = run_helm("template", release, str(CHART))
    assert done.returncode != 0
    assert f'"{release}-shardyard": set fullnameOverride' in done.stderr
    assert of_kind(render({"fullnameOverride": "train"}, release=release), "Service")


def test_a_name_with_dots_stays_in_the_labels_that_select_pods() -> None:
    """They cannot be changed once a release is installed, and only `fullnameOverride` names objects."""
    for deployment in of_kind(render({"nameOverride": "v2.1", "fullnameOverride": "train"}), "Deployment"):
        assert deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] == "v2.1"
        assert deployment["metadata"]["name"].startswith("train-")


#: What YAML reads as a number, a boolean or nothing.
ODD = ["2024", "0x10", "1e3", "true", "null", "off"]
#: Where values of the chart name something.
NAMED = [
    "nameOverride",
    "database.secret.name",
    "database.secret.key",
    "api.token.existingSecret",
    "api.token.key",
    "secretsKey.existingSecret",
    "secretsKey.key",
    "api.priorityClassName",
    "ray.tokenSecret",
    "ray.redis.passwordSecret",
    "ray.redis.passwordKey",
    "ray.worker.runtimeClassName",
    "storage.credentialsSecret",
    "storage.existingClaim",
    "storage.className",
    "serviceAccount.name",
]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("more", [{}, {"storage.create": False}, {"database.secret.create": True}], ids=str)
def test_names_that_look_like_numbers_are_text(name: str, more: Manifest, ray_clusters: Any) -> None:
    """Kubernetes refuses a label or the name of a Secret that is a number."""
    values: Manifest = {"extraEnv": {"OFF": "x"}, "ray": {"env": {"OFF": "x"}}}
    given = dict.fromkeys(NAMED, name) | {"fullnameOverride": "off", "ray.redis.address": "redis://redis:6379"} | more
    if "database.secret.create" in more:
        given["database.secret.url"] = URL
    for path, value in given.items():
        *outer, last = path.split(".")
        part = values
        for key in outer:
            part = part.setdefault(key, {})
        part[last] = value
    objects = render(values, release=name)
    for one in objects:
        if one["kind"] == "RayCluster":
            ray_clusters.validate(one)
        else:
            kubernetes_validate.validate(one, "1.30", strict=True)
    labels = of_kind(objects, "Service")[0]["spec"]["selector"]
    assert labels["app.kubernetes.io/name"] == name == labels["app.kubernetes.io/instance"]


def test_notes_say_how_to_reach_the_api() -> None:
    notes = run_helm("install", "train", str(CHART), "--dry-run=client", "--namespace", "ml", values={}).stdout
    assert "port-forward service/train-shardyard-api" in notes


def test_notes_warn_where_releases_of_one_database_would_not_share_storage_and_key() -> None:
    def warned(values: Manifest) -> bool:
        shown = run_helm("install", "train", str(CHART), "--dry-run=client", "--namespace", "ml", values=values).stdout
        return "WARNING: settings.cluster is east" in shown

    shared = {"secretsKey": {"existingSecret": "key"}, "storage": {"uri": BUCKET}}
    assert not warned({}) and not warned({"settings": {"cluster": "east"}, **shared})
    assert warned({"settings": {"cluster": "east"}}) and warned(
        {"settings": {"cluster": "east"}, "storage": shared["storage"]}
    )


@pytest.fixture(scope="module")
def values_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("values_table", ROOT / "deploy" / "chart" / "values_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_value_says_what_it_is(values_table: ModuleType) -> None:
    entries = list(values_table.entries((CHART / "values.yaml").read_text()))
    assert len(entries) > 50
    assert [entry.path for entry in entries if not entry.comment] == []


def test_the_readme_has_the_table_of_the_values(values_table: ModuleType) -> None:
    readme, values = (CHART / "README.md").read_text(), (CHART / "values.yaml").read_text()
    assert values_table.rewritten(readme, values) == readme, "run `make chart-docs`"


def test_the_readme_says_of_max_ranks_what_the_setting_says(values_table: ModuleType) -> None:
    comments = {entry.path: entry.comment for entry in values_table.entries((CHART / "values.yaml").read_text())}
    said = comments["settings.max_ranks"].replace("null:", "unset:")
    assert said == Settings.model_fields["max_ranks"].description


def test_the_readmes_commands_name_objects_of_the_release_that_it_installs() -> None:
    readme = (CHART / "README.md").read_text()
    (release,) = set(re.findall(r"helm install (\S+)", readme))
    there = {one["metadata"]["name"] for one in render({}, release)} | {"shardyard-database"}
    commands = [line for line in readme.splitlines() if line.strip().startswith("kubectl")]
    named = {name for line in commands for name in re.findall(r"[\w-]*shardyard-[\w-]+", line)}
    assert "shardyard-ray" in there and len(named) > 5
    assert named <= there


def test_the_readme_installs_only_images_that_it_builds() -> None:
    readme = (CHART / "README.md").read_text()
    built = re.findall(r"docker build .* -t \S+/shardyard:(\S+)", readme)
    default = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert {default, *re.findall(r"image\.tag=(\S+)", readme)} == set(built)


def test_the_schema_knows_the_values_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def closed(part: Manifest, values: Manifest, path: str) -> None:
        assert part["additionalProperties"] is False, path
        assert part["properties"].keys() - {"global"} == values.keys(), path
        for name, inner in part["properties"].items():
            if "properties" in inner:
                closed(inner, values[name], f"{path}{name}.")

    closed(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "")


def test_the_schema_has_the_bounds_of_the_settings() -> None:
    """A value beyond them would end every pod of a rollout."""
    bounds = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    chart = json.loads((CHART / "values.schema.json").read_text())["properties"]["settings"]["properties"]
    settings = Settings.model_json_schema()["properties"]
    for name, values in chart.items():
        own = settings[name]
        (number,) = [one for one in own.get("anyOf", [own]) if one.get("type") in ("integer", "number")] or [{}]
        assert {at: values.get(at) for at in bounds} == {at: number.get(at) for at in bounds}, name
