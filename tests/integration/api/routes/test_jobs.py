"""Listing, reading and cancelling jobs over HTTP, and the published description of the API."""

import itertools
import re
from typing import Any

import httpx2
import pytest

from shardyard.api.http import dashboard_files

from ..conftest import SPEC, problem


async def submitted(api: httpx2.AsyncClient, **changes: Any) -> dict[str, Any]:
    job: dict[str, Any] = (await api.post("/v1/jobs", json={**SPEC, **changes})).json()
    return job


async def test_pages_are_newest_first_and_without_gaps(api: httpx2.AsyncClient) -> None:
    ids = [(await submitted(api, name=f"job-{number}"))["id"] for number in range(5)]
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = (await api.get("/v1/jobs", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        found += [job["id"] for job in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert found == ids[::-1]


async def test_filters(api: httpx2.AsyncClient) -> None:
    await submitted(api, name="one", labels={"team": "a", "x": "1=2"})
    await submitted(api, name="two", labels={"team": "b"})

    async def names(**params: Any) -> list[str]:
        return [job["name"] for job in (await api.get("/v1/jobs", params=params)).json()["items"]]

    assert await names(label="team=a") == ["one"]
    assert await names(label=["team=a", "x=1=2"]) == ["one"]
    assert await names(label=["team=a", "x=2"]) == []
    assert await names(name="two") == ["two"]
    assert await names(text="two") == ["two"]
    assert await names(state="queued") == ["two", "one"]
    assert await names(state="running") == []


@pytest.mark.parametrize(
    ("path", "status", "code", "field"),
    [
        ("/v1/jobs?state=sleeping", 422, "invalid_request", "state"),
        ("/v1/jobs?limit=0", 422, "invalid_request", "limit"),
        ("/v1/jobs?limit=many", 422, "invalid_request", "limit"),
        ("/v1/jobs?label=nothing", 422, "invalid_request", "label"),
        ("/v1/jobs?label=team=a&label=team=b", 422, "invalid_request", "label"),
        ("/v1/jobs?cursor=nonsense", 400, "invalid_cursor", "cursor"),
        ("/v1/jobs/absent", 404, "job_not_found", None),
        ("/v1/jobs/%00", 404, "job_not_found", None),
        ("/v1/jobs/absent/events", 404, "job_not_found", None),
        ("/v1/jobs/absent/metrics", 404, "job_not_found", None),
        ("/v1/jobs/absent/logs", 404, "job_not_found", None),
        ("/v1/jobs/absent/incidents", 404, "job_not_found", None),
        ("/v1/jobs/absent/incidents?limit=0", 422, "invalid_request", "limit"),
        ("/v1/jobs/absent/metrics?max_points=1", 422, "invalid_request", "max_points"),
        ("/v1/jobs/absent/metrics?since=-1", 422, "invalid_request", "since"),
        ("/v1/jobs/absent/metrics?since=99999999999999999999", 422, "invalid_request", "since"),
        ("/v1/jobs/absent/metrics?since=9223372036854775807", 422, "invalid_request", "since"),
        ("/v1/jobs/absent/events?after=1.2.9223372036854775808", 400, "invalid_cursor", "after"),
        ("/v1/jobs/absent/logs?rank=-1", 422, "invalid_request", "rank"),
        ("/v1/jobs/absent/events?after=1.2", 400, "invalid_cursor", "after"),
        ("/v1/jobs/absent/events?logs=perhaps", 422, "invalid_request", "logs"),
        ("/v1/nothing", 404, "not_found", None),
        ("/v1/jobs/", 404, "not_found", None),
        ("/assets/nothing.js", 404, "not_found", None),
        ("/assets/%00", 404, "not_found", None),
        ("/assets/a%00.js", 404, "not_found", None),
        ("/assets/" + "x" * 5000, 404, "not_found", None),
        ("/docs/%00", 404, "not_found", None),
        ("/docs/" + "x" * 300, 404, "not_found", None),
        ("/nowhere", 404, "not_found", None),
        ("/assets/../../../app.py", 404, "not_found", None),
        ("/assets/%2e%2e/%2e%2e/%2e%2e/app.py", 404, "not_found", None),
    ],
)
async def test_refused_reads(api: httpx2.AsyncClient, path: str, status: int, code: str, field: str | None) -> None:
    [error, *_] = problem(await api.get(path), status, code)["errors"]
    assert error["field"] == field
    assert error["message"] and error["remedy"]


async def test_cancel_is_idempotent(api: httpx2.AsyncClient) -> None:
    job = await submitted(api)
    for _ in range(2):
        answer = await api.post(f"/v1/jobs/{job['id']}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    assert answer.json()["finished_at"]
    problem(await api.post("/v1/jobs/absent/cancel"), 404, "job_not_found")


async def test_the_schema_is_published(api: httpx2.AsyncClient) -> None:
    schema = (await api.get("/v1/schema/job")).json()
    assert schema["additionalProperties"] is False
    assert {*("apiVersion", "name", "train", "resources", "secrets", "policy", "retention", "labels")} == schema[
        "properties"
    ].keys()


async def test_openapi_is_complete(api: httpx2.AsyncClient) -> None:
    document = (await api.get("/openapi.json")).json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    assert "submitJob" in ids
    assert all(operation["summary"] and operation["tags"] for operation in operations)
    names = document["components"]["schemas"]
    references = {part.split('"')[0] for part in str(document).replace("'", '"').split("#/components/schemas/")[1:]}
    assert references <= names.keys()
    assert "HTTPValidationError" not in references
    submit = document["paths"]["/v1/jobs"]["post"]
    assert {"200", "201", "400", "409", "413", "415", "422", "500"} <= submit["responses"].keys()
    assert submit["requestBody"]["content"].keys() == {"application/json"}
    assert "application/yaml" in submit["requestBody"]["description"]


async def test_the_dashboard_is_one_page(api: httpx2.AsyncClient, monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setattr(dashboard_files, "DIST", tmp_path)
    assert "not built" in (await api.get("/")).text
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<html>page</html>")
    (tmp_path / "assets" / "app.js").write_text("1")
    for path in ("/", "/new", "/cluster", "/compare", "/jobs", "/jobs/job-1", "/jobs/a/b"):
        answer = await api.get(path)
        assert (answer.status_code, answer.text) == (200, "<html>page</html>")
        assert "frame-ancestors" in answer.headers["content-security-policy"]
    for path in ("/nowhere", "/job/a", "/index.html", "/v1"):
        answer = await api.get(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
        assert (answer.status_code, answer.text) == (404, "<html>page</html>"), path
        problem(await api.get(path), 404, "not_found")
    for path in ("/v1/nowhere", "/assets/nowhere.js", "/docs/nowhere.js"):
        problem(await api.get(path, headers={"Accept": "text/html"}), 404, "not_found")
    problem(await api.post("/nowhere", headers={"Accept": "text/html"}), 404, "not_found")
    asset = await api.get("/assets/app.js")
    assert "immutable" in asset.headers["cache-control"]
    assert "javascript" in asset.headers["content-type"]


async def test_the_apis_description_asks_no_other_host(api: httpx2.AsyncClient, monkeypatch: Any) -> None:
    """A page of scripts that others serve would hold the session of the user who opens it."""
    assert "not built" in (await api.get("/docs")).text or (dashboard_files.DIST / "docs" / "index.html").is_file()
    monkeypatch.setattr(dashboard_files, "DIST", dashboard_files.DIST.parent / "public")
    page = await api.get("/docs")
    asked = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert len(asked) == 4 and all(address.startswith("/") and not address.startswith("//") for address in asked)
    assert "<script>" not in page.text
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "javascript" in (await api.get("/docs/start.js")).headers["content-type"]
    problem(await api.get("/docs/../index.html.py"), 404, "not_found")
    problem(await api.get("/docs/nothing.js"), 404, "not_found")


async def test_every_order_is_paged_without_gaps(api: httpx2.AsyncClient) -> None:
    names = ["b", "a", "c", "a", "b-1", "a"]
    ids = [(await api.post("/v1/jobs", json={**SPEC, "name": name})).json()["id"] for name in names]
    by_name = [id_ for _, id_ in sorted(zip(names, ids, strict=True))]
    ended = [ids[4], ids[1]]
    for id_ in ended:
        await api.post(f"/v1/jobs/{id_}/cancel")
    by_state = [*sorted(ended), *(id_ for id_ in ids if id_ not in ended)]
    orders = {"newest": ids[::-1], "oldest": ids, "name": by_name, "state": by_state}
    orders |= {"-name": by_name[::-1], "-state": by_state[::-1]}
    # None of them has run.
    orders |= dict.fromkeys(("duration", "-device_time", "-highest.val/acc", "metric.größe"), ids[::-1])
    for sort, expected in orders.items():
        found: list[str] = []
        cursor: str | None = None
        for _ in range(10):
            params: dict[str, Any] = {"limit": 2, "sort": sort, **({"cursor": cursor} if cursor else {})}
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
    for sort in ("newest", "name", "duration", "-duration", "metric.a"):
        cursors[sort] = (await api.get("/v1/jobs", params={"limit": 1, "sort": sort})).json()["next"]
    for sort, other in itertools.permutations(cursors, 2):
        answer = await api.get("/v1/jobs", params={"sort": sort, "cursor": cursors[other]})
        assert problem(answer, 400, "invalid_cursor")["errors"][0]["remedy"]
    for sort in ("loss", "-newest", "metric.", "metric." + "a" * 201):
        (error,) = problem(await api.get("/v1/jobs", params={"sort": sort}), 422, "invalid_request")["errors"]
        assert error["field"] == "sort" and "-highest.acc" in error["remedy"]


async def test_an_edit_changes_what_it_names_and_not_the_spec(api: httpx2.AsyncClient) -> None:
    job = await submitted(api)
    address = f"/v1/jobs/{job['id']}"
    edited = await api.patch(address, json={"labels": {"team": "b"}, "notes": "One.\n\U0001f4a1" + "x" * 16_378})
    assert edited.status_code == 200, edited.text
    assert edited.json() == job | {"labels": {"team": "b"}, "notes": "One.\n\U0001f4a1" + "x" * 16_378}
    yaml = {"Content-Type": "application/yaml"}
    renamed = await api.patch(address, content="name: other\nnotes: null\n", headers=yaml)
    assert renamed.json() == edited.json() | {"name": "other"}
    assert (await api.get("/v1/jobs/other")).json() == renamed.json()
    assert (await api.get("/v1/jobs/tiny")).status_code == 404


@pytest.mark.parametrize(
    ("body", "field", "remedy"),
    [
        ({}, "body", "Give name, labels, notes or pinned"),
        ({"notes": None}, "body", "Give name, labels, notes or pinned"),
        (["notes"], "body", "Write"),
        ({"notes": "x", "state": "failed"}, "state", "Remove this key."),
        ({"name": "Not A Name"}, "name", "Use text that matches ^[a-z0-9]"),
        ({"name": ""}, "name", "at least 1 character"),
        ({"name": 5}, "name", "Write text"),
        ({"labels": {"a b": "x"}}, "labels.a b", "Use text that matches"),
        ({"labels": {"a": "x\ny"}}, "labels.a", "Leave out line breaks"),
        ({"labels": {"a": 1}}, "labels.a", "Write text"),
        ({"labels": {f"k{n}": "" for n in range(65)}}, "labels", "at most 64"),
        ({"notes": "x" * 16_385}, "notes", "at most 16384 characters"),
        ({"notes": "x\0"}, "notes", "Remove the \\u0000"),
        ({"notes": ["x"]}, "notes", "Write text"),
    ],
)
async def test_an_edit_that_is_refused_changes_nothing(
    api: httpx2.AsyncClient, body: Any, field: str, remedy: str
) -> None:
    job = await submitted(api)
    answer = await api.patch(f"/v1/jobs/{job['id']}", json=body)
    assert answer.status_code in (400, 422), answer.text
    [finding] = answer.json()["errors"]
    assert finding["field"] == field and remedy in finding["remedy"]
    assert (await api.get(f"/v1/jobs/{job['id']}")).json() == job


async def test_an_edit_of_an_unknown_job_is_refused(api: httpx2.AsyncClient) -> None:
    answer = await api.patch("/v1/jobs/absent", json={"notes": "x"})
    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")
