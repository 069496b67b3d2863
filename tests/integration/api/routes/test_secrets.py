"""Secrets over HTTP: what is refused, and that no answer has a value."""

from typing import Any

import httpx2
import pytest

VALUE = "hf_abcdefgh"


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("TOKEN", {"value": "hf_abc"}, "value"),
        ("TOKEN", {"value": VALUE * 10_000}, "value"),
        ("TOKEN", {"value": VALUE + "\0"}, ""),
        ("TOKEN", {"value": 12345678}, "value"),
        ("TOKEN", {"value": VALUE, "more": VALUE}, "more"),
        ("TOKEN", {}, "value"),
        ("TOKEN", VALUE, ""),
        ("2TOKEN", {"value": VALUE}, "name"),
        ("TO-KEN", {"value": VALUE}, "name"),
        ("T" * 256, {"value": VALUE}, "name"),
    ],
)
async def test_what_cannot_be_a_secret_is_refused_without_repeating_it(
    api: httpx2.AsyncClient, name: str, body: Any, field: str
) -> None:
    answer = await api.put(f"/v1/secrets/{name}", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert VALUE not in answer.text and "hf_abc" not in answer.text and "12345678" not in answer.text
    assert any(field in (one["field"] or "") and one["remedy"] for one in answer.json()["errors"]), answer.json()


async def test_a_secret_is_set_listed_and_removed_without_its_value(api: httpx2.AsyncClient) -> None:
    answers = [await api.put("/v1/secrets/TOKEN", json={"value": VALUE}) for _ in range(2)]
    answers.append(await api.get("/v1/secrets"))
    assert [one["name"] for one in answers[-1].json()["items"]] == ["TOKEN"]
    spec = {"name": "mine", "command": "true", "secrets": ["TOKEN"]}
    answers.append(await api.post("/v1/jobs", json=spec))
    answers.append(await api.get(f"/v1/jobs/{answers[-1].json()['id']}"))
    answers += [await api.delete("/v1/secrets/TOKEN") for _ in range(2)]
    assert answers[-1].json()["items"] == []
    assert all(answer.is_success and VALUE not in answer.text for answer in answers), [one.text for one in answers]
    refused = await api.post("/v1/jobs", json=spec)
    assert refused.json()["code"] == "unknown_secret" and refused.json()["errors"][0]["field"] == "secrets[0]"
