import asyncio
import faulthandler
from pathlib import Path
from typing import Any

from harness.patience import PATIENCE_S

from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member, leases_kept


class Heard:
    """An actor as far as it is spoken to: `actor.heartbeat.remote()`."""

    def __init__(self, answers: bool = True) -> None:
        self.heartbeat: Any = self
        self.answers = answers
        self.changed = asyncio.Event()
        self.times = 0

    async def remote(self) -> None:
        self.times += 1
        self.changed.set()
        if not self.answers:
            await asyncio.Event().wait()


async def test_every_living_rank_is_called_again_and_again_while_one_does_not_answer() -> None:
    living, silent, dead = Heard(), Heard(answers=False), Heard()
    rank = [Member(n, handle=RankHandle(actor)) for n, actor in enumerate((living, silent, dead))]
    rank[2].lost = True
    members = [*rank, Member(3)]
    async with asyncio.timeout(PATIENCE_S), leases_kept(members, lease_s=0.03):
        for actor in (living, silent):
            for _ in range(3):
                await actor.changed.wait()
                actor.changed.clear()
    heard = living.times
    await asyncio.sleep(0.05)
    assert living.times == heard and dead.times == 0


def test_an_incident_keeps_the_innermost_frames_of_the_deepest_stack_that_a_rank_can_write(tmp_path: Path) -> None:
    """faulthandler writes the innermost frame first, and the outermost of the hundred last."""
    file = tmp_path / "stacks"

    def innermost() -> None:
        with file.open("w") as stacks:
            faulthandler.dump_traceback(stacks, all_threads=False)

    def descend(deeper: int) -> None:
        descend(deeper - 1) if deeper else innermost()

    descend(120)
    member = Member(0)
    member.log.extend(file.read_text().splitlines())
    assert any(line.endswith(" in innermost") for line in member.log)
    assert sum(line.endswith(" in descend") for line in member.log) > 90
