"""Warm spares: rank actors without a rank, each on a device of its own, that stand in for a rank whose actor died.

Rules that it keeps: a spare stands in only where the rank loses nothing by it, neither its snapshots nor its tensor group's common
node; in the dead one's place a new spare is made; spares are made while the gang trains, not while its ranks start or are repaired
and need the machine; every spare is known by name before it is made, so that none is forgotten.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self
from uuid import uuid4

from ..gang_state import SpareState
from ..hang_watchdog import ANSWER_S, within
from .members import Member
from .placement_group import Order, find_actor, kill, make_actor, spare_name

#: So long a spare may take from its order until it stands by: on a node that is away, for ever.
START_S: Final = 120.0
#: One that dies is made again after so long.
AGAIN_S: Final = 2.0


@dataclass
class Spare:
    """One place for a spare."""

    bundle: int
    name: str = ""  # of its actor; empty: none was made yet
    node: str | None = None  # where it stands by; None: it does not
    actor: Any = field(default=None, repr=False)
    tending: "asyncio.Task[None] | None" = field(default=None, repr=False)

    def to_state(self) -> SpareState:
        return SpareState(self.bundle, self.name, self.node)

    @classmethod
    def from_state(cls, state: SpareState) -> Self:
        return cls(state.bundle, state.name, state.node)


def share_out(order: Order, where: Mapping[int, str]) -> tuple[list[int], list[int]]:
    """The bundles of the ranks' tensor groups, those of one node side by side, and the bundles of spares.

    Without tensor groups all bundles are alike, and every node gets spares by its number of bundles (D'Hondt's rule).
    """
    groups = order.world_size // order.tensor
    bundles = sorted(range(groups + order.spares), key=lambda bundle: (str(where.get(bundle)), bundle))
    spares = {bundle for bundle in bundles if bundle >= groups} if order.tensor > 1 else _fair(order.spares, where)
    return [bundle for bundle in bundles if bundle not in spares], sorted(spares)


def _fair(count: int, where: Mapping[int, str]) -> set[int]:
    size, chosen = Counter(where.values()), set[int]()
    for _ in range(count):
        seats = Counter(where[bundle] for bundle in chosen)
        left = sorted(where.keys() - chosen)
        chosen.add(max(left, key=lambda bundle: (size[where[bundle]] / (seats[where[bundle]] + 1), bundle)))
    return chosen


def choice(order: Order, member: Member, spares: Sequence[Spare]) -> Spare | None:
    """Who may stand in for a rank whose actor died; None: nobody."""
    ready = [spare for spare in spares if spare.node is not None]
    near = [spare for spare in ready if spare.node == member.node]
    if near or order.tensor > 1 or member.remains is not None:
        return near[0] if near else None
    return ready[0] if ready else None


class Spares:
    """The spares of one gang, from its placement to its end."""

    def __init__(self, order: Order, settled: Callable[[], Awaitable[None]]) -> None:
        """`settled()`: until what `all` holds now is remembered."""
        self.order = order
        self.all: list[Spare] = []
        self._settled = settled
        self._group: Any = None
        self._training = asyncio.Event()

    def begin(self, group: Any, bundles: Sequence[int] = ()) -> None:
        """Tend those that are known; when none is, one for each of these bundles of the placement group."""
        self._group = group
        self.all = self.all or [Spare(bundle) for bundle in bundles]
        for spare in self.all:
            self._tend(spare)

    def find(self) -> None:
        """Those that a dead supervisor left."""
        for spare in self.all:
            spare.actor = find_actor(spare.name) if spare.name else None
            spare.node = spare.node if spare.actor is not None else None

    def training(self, trains: bool) -> None:
        """Whether the gang trains now."""
        if trains:
            self._training.set()
        else:
            self._training.clear()

    def stand_in(self, member: Member) -> bool:
        """Give a rank whose actor died to a spare, and its place to a new one; False when no spare may."""
        spare = choice(self.order, member, self.all)
        if spare is None:
            return False
        if spare.tending:
            spare.tending.cancel()
        self.all[self.all.index(spare)] = fresh = Spare(member.bundle)
        member.sits(spare.actor, spare.name, spare.bundle)
        self._tend(fresh)
        return True

    def lose(self, node: str | None) -> None:
        """Nobody stands by any more on a node that is gone."""
        for spare in self.all:
            spare.node = None if spare.node == node else spare.node

    async def end(self) -> list[Any]:
        """Tend nobody any more; returns the actors that there are."""
        tasks = [spare.tending for spare in self.all if spare.tending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [spare.actor for spare in self.all if spare.actor is not None]

    def _tend(self, spare: Spare) -> None:
        spare.tending = asyncio.get_running_loop().create_task(self._stand_by(spare))

    async def _stand_by(self, spare: Spare) -> None:
        """Have a spare in this place, another one when it dies, and speak to it so that it knows of its supervisor."""
        from ray.exceptions import RayError

        while True:
            try:
                await self._make(spare)
                spare.node = await within(START_S, spare.actor.stand_by.remote())
                while True:
                    await within(self.order.lease_s + ANSWER_S, spare.actor.pull.remote(0, self.order.lease_s / 3))
            except (RayError, TimeoutError):
                await self._lose(spare)
            await asyncio.sleep(AGAIN_S)

    async def _make(self, spare: Spare) -> None:
        if spare.actor is not None:
            return
        await self._training.wait()
        spare.name = spare_name(self.order.name, uuid4().hex[:8])
        await self._settled()
        making = asyncio.ensure_future(asyncio.to_thread(make_actor, self.order, self._group, spare.bundle, spare.name))
        try:
            spare.actor = await asyncio.shield(making)
        except asyncio.CancelledError:
            spare.actor = await making  # a thread goes on when its task is cancelled: what it makes is not to be lost
            raise

    async def _lose(self, spare: Spare) -> None:
        dead, spare.actor, spare.node = spare.actor, None, None
        if dead is not None:
            await asyncio.to_thread(kill, dead)
