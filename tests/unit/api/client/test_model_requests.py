"""Requests of the model registry: names are quoted, and what is not given is not sent."""

import json

import pytest

from shardyard.api.client import model_requests as requests
from shardyard.api.client.transport import ApiError


def test_names_and_aliases_are_quoted() -> None:
    assert requests.version("a/b", "@x?").path == "/v1/models/a%2Fb/versions/%40x%3F"
    assert requests.remove_alias("a b", "c/d", 3).path == "/v1/models/a%20b/aliases/c%2Fd"


def test_a_version_is_created_with_what_is_given() -> None:
    call = requests.create_version("llama", "key-1", job="job-1", step=None, notes="")
    assert json.loads(call.content or b"") == {"job": "job-1", "notes": ""}
    assert call.headers["Idempotency-Key"] == "key-1"
    with pytest.raises(ApiError, match="not an idempotency key"):
        requests.create_version("llama", "a key", job="job-1")


@pytest.mark.parametrize(("expected", "sent"), [(None, {"version": 2}), (1, {"version": 2, "expected": 1})])
def test_an_alias_is_moved_from_the_version_that_is_expected(expected: int | None, sent: dict[str, int]) -> None:
    assert json.loads(requests.set_alias("llama", "production", 2, expected).content or b"") == sent
