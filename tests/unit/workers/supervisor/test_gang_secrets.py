import asyncio

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.secret import Secret
from shardyard.workers.supervisor.gang_secrets import GangSecrets

TOKEN = Secret("TOKEN", "hf_abcdefgh")


async def test_a_gang_without_secrets_misses_none() -> None:
    secrets = GangSecrets(needed=False)
    assert (await secrets.values(), secrets.now, secrets.missed) == ((), (), False)


async def test_ranks_wait_until_the_dispatcher_has_sent_them() -> None:
    secrets = GangSecrets(needed=True)
    assert secrets.now is None and not secrets.missed  # a gang that only ends needs none
    waiting = [asyncio.ensure_future(secrets.values()) for _ in range(3)]
    await asyncio.wait_for(secrets.until_missed(), PATIENCE_S)
    assert secrets.missed and not any(wait.done() for wait in waiting)
    secrets.provide([TOKEN])
    assert await asyncio.gather(*waiting) == [[TOKEN]] * 3
    assert secrets.now == [TOKEN] and not secrets.missed
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(secrets.until_missed(), 0.01)
    assert await secrets.values() == [TOKEN]
