"""The published schemas and templates of specs."""

import httpx2
import yaml

from shardyard.service.spec import kind_of
from shardyard.service.sweep_spec import SweepOfCommand, SweepOfTraining


async def test_templates_are_specs_of_which_the_simplest_is_the_first(api: httpx2.AsyncClient) -> None:
    items = (await api.get("/v1/templates")).json()["items"]
    assert items[0]["name"] == "quickstart"
    assert items[0]["about"].startswith("A small Llama") and "shardyard run" not in items[0]["about"]
    for item in items:
        document = yaml.safe_load(item["text"])
        sweep = {SweepOfTraining, SweepOfCommand} if "sweep" in document else set()
        kinds = {kind for kind in sweep if issubclass(kind, kind_of(document))} or {kind_of(document)}
        kinds.pop().model_validate(document)
    preview = await api.post("/v1/jobs/preview", content=items[0]["text"], headers={"Content-Type": "application/yaml"})
    assert preview.json()["name"] == "quickstart"


async def test_each_kind_of_job_has_a_schema(api: httpx2.AsyncClient) -> None:
    train = (await api.get("/v1/schema/job")).json()
    command = (await api.get("/v1/schema/job", params={"kind": "command"})).json()
    assert train["required"] == ["name", "train"] and command["required"] == ["name", "command"]
    assert train["properties"]["apiVersion"]["const"] == command["properties"]["apiVersion"]["const"] == "shardyard/v1"
    assert (await api.get("/v1/schema/job", params={"kind": "other"})).status_code == 422
