"""Uploading code over HTTP: what is no archive is refused by field, and the real client's uploads arrive."""

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shardyard.workers.code_archive import deflated

from ..conftest import problem

OCTETS = {"Content-Type": "application/octet-stream"}


def manifest(**changes: Any) -> dict[str, Any]:
    return {"bytes": 3, "files": 1, "parts": [hashlib.sha256(b"abc").hexdigest()], **changes}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bytes": 0}, "bytes"),
        ({"bytes": "3"}, "bytes"),
        ({"bytes": 1 << 40}, "bytes"),
        ({"files": 100_001}, "files"),
        ({"parts": ["x"]}, "parts[0]"),
        ({"parts": ["0" * 64] * 513}, "parts"),
        ({"commit": "HEAD"}, "commit"),
        ({"diff": "x" * (256 << 10) + "x"}, "diff"),
        ({"diff": "\0"}, ""),
        ({"more": 1}, "more"),
    ],
)
async def test_a_manifest_is_refused_by_its_field(api: httpx2.AsyncClient, changes: dict[str, Any], field: str) -> None:
    answer = await api.post("/v1/code", json=manifest(**changes))
    assert answer.status_code in (400, 422), answer.text
    assert any(field in (each["field"] or "") for each in answer.json()["errors"]), answer.json()


async def test_parts_are_octets_within_their_size(api: httpx2.AsyncClient) -> None:
    begun = (await api.post("/v1/code", json=manifest())).json()
    path = f"/v1/code/{begun['id']}/parts/0"
    assert begun["missing"] == [0]
    wrong = await api.put(path, content=deflated(b"abc"), headers={"Content-Type": "text/plain"})
    assert problem(wrong, 415, "unsupported_media_type")
    large = await api.put(path, content=bytes(5 << 20), headers=OCTETS)
    assert problem(large, 413, "spec_too_large")
    other = await api.put(path, content=deflated(b"abd"), headers=OCTETS)
    assert problem(other, 422, "invalid_code")
    no_tar = await api.put(path, content=deflated(b"abc"), headers=OCTETS)
    assert problem(no_tar, 422, "invalid_code")
    assert problem(await api.get(f"/v1/code/{begun['id']}"), 404, "code_not_found")
    problem(await api.get("/v1/code/..%2f..%2fetc"), 404, "not_found")
    problem(await api.get("/v1/code/etc"), 422, "invalid_request")


async def test_a_spec_whose_folder_was_not_uploaded_is_previewed_and_not_taken(api: httpx2.AsyncClient) -> None:
    spec = {"name": "a", "command": ["x"], "code": {"dir": "/code"}, "cwd": "sub"}
    assert (await api.post("/v1/jobs/preview", json=spec)).status_code == 200
    refused = problem(await api.post("/v1/jobs", json=spec), 422, "invalid_spec")
    assert refused["errors"][0]["field"] == "code.archive" and "command line" in refused["errors"][0]["remedy"]
    leaves = problem(await api.post("/v1/jobs/preview", json={**spec, "cwd": "a/../../b"}), 422, "invalid_spec")
    assert leaves["errors"][0]["field"] == "cwd"


async def test_a_body_over_the_limit_of_specs_is_no_spec(api: httpx2.AsyncClient, tmp_path: Path) -> None:
    body = json.dumps(manifest(diff="x" * (2 << 20)))
    answer = await api.post("/v1/code", content=body, headers={"Content-Type": "application/json"})
    assert problem(answer, 413, "spec_too_large")
