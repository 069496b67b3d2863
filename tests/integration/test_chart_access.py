"""The chart's access token and its key of secrets: made once, kept over upgrades, seen by few pods; or given; or, for the token, none."""

import base64
import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from harness.http_server import http_server

from shardyard.api.access_token import checked

from .test_chart import CHART, Manifest, of_kind, pods, render, run_helm

OPEN: Manifest = {"api": {"insecureAllowRemote": True}}
GIVEN: Manifest = {"api": {"token": {"existingSecret": "mine", "key": "shardyard"}}}


def mounts(objects: list[Manifest], secret: str) -> set[str]:
    """Names of the containers whose pod mounts a Secret, and that mount it."""
    found = set()
    for pod in pods(objects):
        volumes = [
            volume["name"] for volume in pod["spec"]["volumes"] if secret == volume.get("secret", {}).get("secretName")
        ]
        for container in pod["spec"]["containers"]:
            if any(mount["name"] in volumes for mount in container["volumeMounts"]):
                found.add(container["name"])
    return found


def api(objects: list[Manifest]) -> Manifest:
    deployment = next(one for one in of_kind(objects, "Deployment") if one["metadata"]["name"].endswith("-api"))
    found: Manifest = deployment["spec"]["template"]["spec"]
    return found


def made(objects: list[Manifest]) -> dict[str, dict[str, str]]:
    """The Secrets that the chart makes: end of the name → content."""
    return {
        one["metadata"]["name"].removeprefix("train-shardyard-"): {
            key: base64.b64decode(value).decode() for key, value in one["data"].items()
        }
        for one in of_kind(objects, "Secret")
    }


def token_of(objects: list[Manifest]) -> str:
    return checked(made(objects)["token"]["token"], "the Secret")


def test_by_default_a_random_token_guards_the_api_and_no_other_pod_sees_it() -> None:
    objects = render({})
    assert token_of(objects) != token_of(render({}))
    assert mounts(objects, "train-shardyard-token") == {"api"}
    [container] = api(objects)["containers"]
    path = next(one["value"] for one in container["env"] if one["name"] == "SHARDYARD_TOKEN_PATH")
    mount = next(one for one in container["volumeMounts"] if one["name"] == "token")
    volume = next(one for one in api(objects)["volumes"] if one["name"] == "token")["secret"]
    assert path == f"{mount['mountPath']}/{volume['items'][0]['path']}" and mount["readOnly"]
    assert volume["defaultMode"] == 0o400
    assert of_kind(objects, "ConfigMap")[0]["data"]["SHARDYARD_INSECURE_ALLOW_REMOTE"] == "false"


def test_a_secret_of_ones_own() -> None:
    objects = render(GIVEN)
    assert "token" not in made(objects)
    assert mounts(objects, "mine") == {"api"}
    volume = next(one for one in api(objects)["volumes"] if one["name"] == "token")["secret"]
    assert volume["items"] == [{"key": "shardyard", "path": "token"}]


def test_without_authentication_there_is_no_token_and_a_warning() -> None:
    objects = render(OPEN)
    assert "token" not in made(objects)
    assert "SHARDYARD_TOKEN_PATH" not in json.dumps(objects) and mounts(objects, "train-shardyard-token") == set()
    assert "WARNING" in notes(OPEN)


def notes(values: Manifest) -> str:
    return run_helm("install", "train", str(CHART), "--dry-run=client", "--namespace", "ml", values=values).stdout


@pytest.mark.parametrize(
    ("values", "secret", "key"), [({}, "train-shardyard-token", "token"), (GIVEN, "mine", "shardyard")]
)
def test_the_notes_say_how_to_read_it(values: Manifest, secret: str, key: str) -> None:
    said = notes(values).partition("NOTES:")[2]
    assert f"get secret {secret} " in said and f'index .data "{key}" | base64decode' in said
    assert "SHARDYARD_TOKEN=" in said and "shardyard open" in said
    assert "WARNING" not in said


def test_the_api_goes_by_its_services_names_and_those_that_are_given() -> None:
    data = of_kind(render({"api": {"allowedHosts": ["train.example.com"]}}), "ConfigMap")[0]["data"]
    names = data["SHARDYARD_ALLOWED_HOSTS"].split(",")
    assert {"train-shardyard-api", "train-shardyard-api.ml.svc", "train.example.com"} <= set(names)


@pytest.mark.parametrize("host", ["https://train.example.com", "a b", "*x.example.com", ""])
def test_a_host_that_is_no_name_is_refused(host: str) -> None:
    done = run_helm("template", "train", str(CHART), values={"api": {"allowedHosts": [host]}})
    assert done.returncode != 0 and "allowedHosts" in done.stderr


KEPT = base64.b64encode(b"kept-over-upgrades-" * 3).decode()
KEPT_KEY = base64.b64encode(b"a-key-that-is-kept").decode()
SECRET = "/api/v1/namespaces/ml/secrets/train-shardyard-token"
KEY_SECRET = "/api/v1/namespaces/ml/secrets/train-shardyard-secrets-key"


@pytest.fixture
def cluster() -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of what Helm takes for a Kubernetes API that knows Secrets, and its objects by path."""
    kinds = [{"name": "secrets", "namespaced": True, "kind": "Secret", "verbs": ["get"]}]
    objects: dict[str, Any] = {
        "/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": kinds},
    }

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = objects.get(self.path.partition("?")[0])
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found or status).encode())

        def log_message(self, *_: Any) -> None: ...

    with http_server(Api) as port:
        yield f"http://127.0.0.1:{port}", objects


def test_an_upgrade_keeps_the_token_and_the_key(cluster: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    address, objects = cluster
    chart = tmp_path / "shardyard"  # of the chart what the token needs: Helm would ask the API about every other kind
    shutil.copytree(CHART, chart)
    for template in (chart / "templates").iterdir():
        if template.name not in ("_names.tpl", "api-token.yaml", "secrets-key.yaml"):
            template.unlink()

    def upgraded(**token: str) -> str:
        done = run_helm(
            "template", "train", str(chart), "--namespace", "ml", "--dry-run=server", "--disable-openapi-validation",
            "--kube-apiserver", address, values={"api": {"token": token}},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert KEPT not in upgraded() and KEPT_KEY not in upgraded()
    owner = {"meta.helm.sh/release-name": "train", "meta.helm.sh/release-namespace": "ml"}
    metadata = {"annotations": owner, "labels": {"app.kubernetes.io/managed-by": "Helm"}}
    objects[SECRET] = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"token": KEPT}}
    objects[KEY_SECRET] = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": KEPT_KEY}}
    assert KEPT in upgraded() and KEPT_KEY in upgraded()
    assert KEPT in upgraded(key="other"), "the key is that of an existing Secret"


def test_secrets_of_users_are_encrypted_by_a_key_that_api_and_dispatcher_share() -> None:
    objects = render({})
    assert made(objects)["secrets-key"] != made(render({}))["secrets-key"]
    Fernet(made(objects)["secrets-key"]["key"])
    assert mounts(objects, "train-shardyard-secrets-key") == {"api", "dispatcher"}
    given = render({"secretsKey": {"existingSecret": "mine", "key": "fernet"}})
    assert "secrets-key" not in made(given) and mounts(given, "mine") == {"api", "dispatcher"}
    for deployment in of_kind(given, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        path = next(one["value"] for one in container["env"] if one["name"] == "SHARDYARD_SECRETS_KEY_PATH")
        volume = next(one for one in pod["volumes"] if one["name"] == "secrets-key")["secret"]
        assert (path, volume["items"]) == ("/run/secrets/secrets-key/key", [{"key": "fernet", "path": "key"}])
