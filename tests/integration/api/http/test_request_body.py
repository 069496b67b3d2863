"""Bodies of requests: at most a bounded number of bytes, uncompressed, YAML or JSON."""

import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from ..conftest import SPEC, problem
from ..routes.test_submit import stored


async def test_ten_megabytes_are_refused(api: httpx2.AsyncClient) -> None:
    body = json.dumps({**SPEC, "labels": {"a": "x" * (10 << 20)}}).encode()
    answer = await api.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    [found] = problem(answer, 413, "spec_too_large")["errors"]
    assert "train.data.files" in found["remedy"]
    assert await stored(api) == []


async def test_the_remedy_for_a_large_body_is_of_a_spec_only_for_specs(api: httpx2.AsyncClient) -> None:
    body = json.dumps({"value": "x" * (1 << 20)}).encode()
    for method, path in (("PUT", "/v1/secrets/a"), ("PATCH", "/v1/jobs/a")):
        answer = await api.request(method, path, content=body, headers={"Content-Type": "application/json"})
        [found] = problem(answer, 413, "spec_too_large")["errors"]
        assert found["remedy"] == "Send a smaller body."
    for path in ("/v1/jobs", "/v1/jobs/preview", "/v1/jobs/advice", "/v1/sweeps"):
        answer = await api.post(path, content=body, headers={"Content-Type": "application/json"})
        [found] = problem(answer, 413, "spec_too_large")["errors"]
        assert "train.data.files" in found["remedy"]


async def test_an_endless_body_is_not_read_to_its_end(api: httpx2.AsyncClient) -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while read < 1 << 30:
            read += 1 << 20
            yield b" " * (1 << 20)

    answer = await api.post("/v1/jobs", content=endless(), headers={"Content-Type": "application/yaml"})
    problem(answer, 413, "spec_too_large")
    assert read < 1 << 26


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b'{"name": "\xff"}', "application/json", 400, "invalid_encoding"),
        (b"\xfe\xffname", "application/yaml", 400, "invalid_encoding"),
        (b"{", "application/json", 400, "invalid_syntax"),
        (b"a: 1\na: 2", "application/yaml", 400, "invalid_syntax"),
        (b"a: &a 1\nb: *a", "application/yaml", 400, "invalid_syntax"),
        (b"", "application/json", 400, "invalid_syntax"),
        (b"", "application/yaml", 422, "invalid_spec"),
        (b"[]", "application/json", 422, "invalid_spec"),
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"{}", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        (b"{}", "application/json; charset=latin-1", 415, "unsupported_media_type"),
        (b"{}", 'application/json; version=1; Charset="latin-1"', 415, "unsupported_media_type"),
        (b"{}", "application/json; charset*=utf-8''latin-1", 415, "unsupported_media_type"),
        (b"{}", "application/json, text/plain", 415, "unsupported_media_type"),
        (b"[]", 'Application/JSON; profile="charset=latin-1"; charset="UTF-8"', 422, "invalid_spec"),
        (b"{}", "", 415, "unsupported_media_type"),
    ],
)
async def test_a_body_that_is_no_document(
    api: httpx2.AsyncClient, body: bytes, kind: str, status: int, code: str
) -> None:
    answer = await api.post("/v1/jobs", content=body, headers={"Content-Type": kind} if kind else {})
    errors = problem(answer, status, code)["errors"]
    assert errors and all(error["remedy"] for error in errors)
    assert await stored(api) == []


async def test_a_doubled_key_that_is_no_text_is_refused(api: httpx2.AsyncClient) -> None:
    """Half of a surrogate pair is in no answer, whose text is UTF-8."""
    answer = await api.post(
        "/v1/jobs", content=rb'{"\ud800": 1, "\ud800": 2}', headers={"Content-Type": "application/json"}
    )
    [error] = problem(answer, 400, "invalid_syntax")["errors"]
    assert (error["field"], error["message"]) == (None, r"The key '\ud800' occurs twice in one object.")


async def test_a_compressed_body_is_refused(api: httpx2.AsyncClient) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    problem(await api.post("/v1/jobs", content=b"\x1f\x8b", headers=headers), 415, "unsupported_media_type")
