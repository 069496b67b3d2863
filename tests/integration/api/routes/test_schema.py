"""The published schemas and templates of specs."""

import httpx2
import yaml

from shardyard.service.spec import JobSpec


async def test_templates_are_specs_of_which_the_simplest_is_the_first(api: httpx2.AsyncClient) -> None:
    items = (await api.get("/v1/templates")).json()["items"]
    assert items[0]["name"] == "quickstart"
    assert items[0]["about"].startswith("A small Llama") and "shardyard run" not in items[0]["about"]
    for item in items:
        JobSpec.model_validate(yaml.safe_load(item["text"]))
    preview = await api.post("/v1/jobs/preview", content=items[0]["text"], headers={"Content-Type": "application/yaml"})
    assert preview.json()["name"] == "quickstart"
