"""What the dashboard's pages ask beside jobs: outlines, templates, previews, orders, and who holds the machines."""

import itertools
import time
from typing import Any

import httpx2
import pytest
import yaml

from shardyard.api.client import Client
from shardyard.service.ids import gang_name
from shardyard.service.spec import JobSpec
from shardyard.service.store import nodes

from ..conftest import SPEC, Gang, Plane, ask
from .test_submit import REFUSED, problem, stored, train

# Outlines


def test_outlines_of_many_jobs_are_one_answer(plane: Plane, client: Client) -> None:
    ids = []
    for name, steps in (("long", 20), ("short", 3)):
        ids.append(client.submit({**SPEC, "name": name}).id)
        gang = Gang(plane, ids[-1])
        gang.state("starting")
        gang.state("running")
        gang.steps(1, steps)
    long, short = ids
    silent = client.submit({**SPEC, "name": "silent"}).id
    answer = ask(
        "GET", f"{plane.url}/v1/sparklines", params={"job": [long, silent, short, "job-nobody", "a\0b"]}
    ).json()
    assert [item["job"] for item in answer["items"]] == [long, short]
    first, second = answer["items"]
    assert first["width"] == 1 and len(first["low"]) == 20 and first["low"] == first["high"]
    assert second["high"] == [5.0, 2.5, 1.6667]


async def test_outlines_are_asked_for_by_job(api: httpx2.AsyncClient) -> None:
    for params in ({}, {"job": ["x"] * 201}):
        [error] = problem(await api.get("/v1/sparklines", params=params), 422, "invalid_request")["errors"]
        assert error["field"] == "job" and error["remedy"]
    assert (await api.get("/v1/sparklines", params={"job": ["x"] * 200})).json() == {"items": []}


# Orders


async def test_every_order_is_paged_without_gaps(api: httpx2.AsyncClient) -> None:
    names = ["b", "a", "c", "a", "b-1", "a"]
    ids = [(await api.post("/v1/jobs", json={**SPEC, "name": name})).json()["id"] for name in names]
    by_name = [id_ for _, id_ in sorted(zip(names, ids, strict=True))]
    for sort, expected in {"newest": ids[::-1], "oldest": ids, "name": by_name}.items():
        found: list[str] = []
        cursor: str | None = None
        for _ in range(10):
            params = {"limit": 2, "sort": sort, **({"cursor": cursor} if cursor else {})}
            page = (await api.get("/v1/jobs", params=params)).json()
            found += [job["id"] for job in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert found == expected, sort


async def test_a_cursor_belongs_to_its_order(api: httpx2.AsyncClient) -> None:
    for _ in range(2):
        await api.post("/v1/jobs", json=SPEC)
    cursors = {}
    for sort in ("newest", "name"):
        cursors[sort] = (await api.get("/v1/jobs", params={"limit": 1, "sort": sort})).json()["next"]
    for sort, other in itertools.permutations(cursors):
        answer = await api.get("/v1/jobs", params={"sort": sort, "cursor": cursors[other]})
        assert problem(answer, 400, "invalid_cursor")["errors"][0]["remedy"]
    problem(await api.get("/v1/jobs", params={"sort": "loss"}), 422, "invalid_request")


# Previews and templates


async def test_a_preview_tells_what_would_run_and_stores_nothing(api: httpx2.AsyncClient) -> None:
    answer = await api.post("/v1/jobs/preview", json=train(layout={"data": {"min": 1, "max": 4}}))
    assert answer.status_code == 200
    told = answer.json()
    assert (told["world_size"], told["global_batch"], told["data"], told["microbatches"], told["micro_batch"]) == (
        4, 8, 4, 1, 2,
    )  # fmt: skip
    assert (told["tokens_per_step"], told["tokens"]) == (512, 10_240)
    assert told["parameters"] == 4 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 352 + 2 * 128) + 2 * 256 * 128 + 128
    assert [form["data"] for form in told["forms"]] == [4, 2, 1]
    assert await stored(api) == []


async def test_parameters_that_cannot_be_counted_are_null(api: httpx2.AsyncClient, tmp_path: Any) -> None:
    own = train(model={"import": "somewhere:build", "code": str(tmp_path)})
    assert (await api.post("/v1/jobs/preview", json=own)).json()["parameters"] is None


@pytest.mark.parametrize(("document", "code", "field", "remedy"), REFUSED)
async def test_a_preview_refuses_what_a_submission_refuses(
    api: httpx2.AsyncClient, document: dict[str, Any], code: str, field: str, remedy: str
) -> None:
    answer = await api.post(
        "/v1/jobs/preview", content=yaml.safe_dump(document), headers={"Content-Type": "application/yaml"}
    )
    found = next(error for error in problem(answer, 422, code)["errors"] if error["field"].startswith(field))
    assert remedy in found["remedy"]


async def test_templates_are_specs_of_which_the_simplest_is_the_first(api: httpx2.AsyncClient) -> None:
    items = (await api.get("/v1/templates")).json()["items"]
    assert items[0]["name"] == "quickstart"
    assert items[0]["about"].startswith("A small Llama") and "shardyard run" not in items[0]["about"]
    for item in items:
        JobSpec.model_validate(yaml.safe_load(item["text"]))
    preview = await api.post("/v1/jobs/preview", content=items[0]["text"], headers={"Content-Type": "application/yaml"})
    assert preview.json()["name"] == "quickstart"


# Machines


def test_machines_name_the_jobs_that_hold_them(plane: Plane, client: Client) -> None:
    fixed = client.submit({**SPEC, "name": "fixed"}).id
    elastic = client.submit({**train(layout={"data": {"min": 1, "max": 4}}), "name": "elastic"}).id
    gangs = [
        {"gang": gang_name(fixed, 1), "cpu": 0.5, "gpu": 0.0},
        {"gang": gang_name(elastic, 2), "cpu": 1.0, "gpu": 0.0},
        {"gang": gang_name("job-forgotten", 1), "cpu": 0.25, "gpu": 0.0},
    ]
    seen(plane, gangs=gangs, cpu_used=1.75)
    [node] = client.nodes()
    assert [(one.kind, one.all, one.free) for one in node.devices] == [("cpu", 16, 9), ("cuda", 2, 2)]
    largest, smallest = node.held
    assert (largest.job, largest.name, largest.state, largest.ranks) == (elastic, "elastic", "queued", 4)
    assert largest.elastic is not None and (largest.elastic.min, largest.elastic.max) == (1, 4)
    assert (smallest.job, smallest.ranks, smallest.elastic) == (fixed, 2, None)
    seen(plane, gangs=gangs, alive=False)
    assert client.nodes()[0].held == []


def test_a_crowded_machine_names_the_largest_gangs(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    gangs = [{"gang": gang_name(job, number), "cpu": 0.25, "gpu": 0.0} for number in range(1, 71)]
    seen(plane, gangs=gangs)
    [node] = client.nodes()
    assert (len(node.held), node.held_more) == (64, 6)


def seen(plane: Plane, **changes: Any) -> None:
    """A dispatcher's last look at a node with 4 cores and 2 GPUs."""
    row = {"id": "n1", "host": "here", "alive": True, "cpu": 4.0, "gpu": 2.0, "cpu_used": 0.0, "gpu_used": 0.0}

    async def write() -> None:
        async with plane.store.write() as tx:
            await nodes.replace(tx, [{**row, "memory_bytes": 1 << 30, "seen_at": time.time(), **changes}])

    plane.do(write())
