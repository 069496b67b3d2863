"""How long a body may take. Over a real connection: tests/integration/api/http/test_request_body.py."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.errors import RequestTimeout, SpecTooLarge
from shardyard.api.http import request_body


class Sent:
    """A request whose body comes in these parts; with `stalls` it never ends."""

    def __init__(self, *parts: bytes, stalls: bool = False) -> None:
        self._parts, self._stalls = parts, stalls

    async def stream(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part
        if self._stalls:
            await asyncio.Event().wait()


async def test_a_body_has_more_time_for_what_has_arrived_of_it() -> None:
    request: Any = Sent(b"a" * 60, b"b" * 40)
    async with asyncio.timeout(PATIENCE_S) as limit:
        before = limit.when()
        assert await request_body._read(request, 100, limit, "") == b"a" * 60 + b"b" * 40
        assert before is not None and limit.when() == pytest.approx(before + 100 / request_body.LEAST_BYTES)
        with pytest.raises(SpecTooLarge):
            await request_body._read(Sent(b"a" * 1000), 100, limit, "")  # type: ignore[arg-type]
        assert limit.when() == pytest.approx(before + 200 / request_body.LEAST_BYTES), "of what is kept"


async def test_a_body_that_stalls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "BODY_S", 0.01)
    request: Any = Sent(b"a", stalls=True)
    with pytest.raises(RequestTimeout, match="slower than 32 KiB"):
        await request_body.read(request)
