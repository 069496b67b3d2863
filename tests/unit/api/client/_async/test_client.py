"""How long a client waits for a control plane that does not answer."""

import pytest

from shardyard.api.client import AsyncClient
from shardyard.api.client.transport import ApiError, Unreachable


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (Unreachable("http://x", "refused"), True),
        (ApiError("database_unreachable", "The database does not answer.", 503), True),
        (ApiError("not_shardyard", "An answer of a proxy.", 502), True),
        (ApiError("internal_error", "An error of the control plane.", 500), False),
        (ApiError("job_not_found", "There is no such job.", 404), False),
        (ApiError("not_shardyard", "The download has no SHA-256 as its ETag."), False),
    ],
)
async def test_an_outage_is_waited_out_though_a_proxy_answers(
    monkeypatch: pytest.MonkeyPatch, error: ApiError, passes: bool
) -> None:
    async def at_once(_: float) -> None: ...

    monkeypatch.setattr("shardyard.api.client._async.client.sleep", at_once)
    answers: list[object] = [error, error, "the answer"]

    async def request() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with AsyncClient("http://127.0.0.1:9", patience_s=60.0) as client:
        if passes:
            assert await client._retry_unreachable(request) == "the answer"
        else:
            with pytest.raises(ApiError) as raised:
                await client._retry_unreachable(request)
            assert raised.value is error and len(answers) == 2
