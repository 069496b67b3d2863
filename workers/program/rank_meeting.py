"""What the ranks of one generation agree on about checkpoints, through the store that rank 0's trainer process holds.

Rules that it keeps: a step is saved by one rank, or by all; the last of all makes it complete; on a full disk one rank makes
room for all; all continue from the same checkpoint, which the first that asks picks. A new generation has a new store, so nothing of an
older one counts. Nor does what ranks agreed on before their launcher started them again: its count of restarts is in all keys.
"""

import contextlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

from ..checkpoint.errors import CheckpointError
from .shared_folder import EndRequested

#: Seconds between two looks at the store, and for which a rank waits for others.
LOOK_S: Final = 0.1
WAIT_S: Final = 3600.0

#: What a rank finds of a choice. `unread`: it may be valid, but the storage cannot read it. `removed`: a save has removed it meanwhile.
Vote = Literal["valid", "corrupt", "unread", "removed"]

_PICKING: Final = "picking"
_FAILED: Final = "failed"
#: A rank makes room, and what came of it.
_MAKING: Final = "making"
_MADE: Final = "made"
_NOTHING: Final = "nothing"
_WORKER: Final = "shardyard/ray-train/{}/{}".format


class Store(Protocol):
    """The methods of torch's TCPStore that are used. `compare_set` returns the value after it; a missing one counts as empty text."""

    def set(self, key: str, value: str, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def add(self, key: str, amount: int, /) -> int: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...
    def delete_key(self, key: str, /) -> bool: ...


class CheckpointMismatch(CheckpointError):
    """Ranks disagree on who saves a step, or on its content."""

    code = "checkpoint_mismatch"


class RankMeeting:
    """One rank's place among the `world` ranks of a generation. `restarts`: how often its launcher has started it again there."""

    def __init__(
        self,
        store: Any,
        rank: int,
        world: int,
        is_to_stop: Callable[[], bool],
        restarts: int = 0,
        is_replaced: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_to_stop` includes `is_replaced`: whether the launcher has started the rank once more."""
        self._store: Store = store
        self.rank, self.world = rank, world
        self.is_to_stop, self._is_replaced = is_to_stop, is_replaced
        self._keys = f"shardyard/{restarts}"
        self._begun: int | None = None  # the step that this rank has begun last, of those that all save
        self._failed: Counter[int | None] = (
            Counter()
        )  # choices that have failed, by trainer: as many on all ranks that have asked as often

    def after(self, restarts: int, is_replaced: Callable[[], bool]) -> "RankMeeting":
        """The same rank's place after this many restarts by its launcher. `is_replaced`: whether that has started it once more."""

        def is_to_stop() -> bool:
            return is_replaced() or self.is_to_stop()

        return RankMeeting(self._store, self.rank, self.world, is_to_stop, restarts, is_replaced)

    def claim(self, step: int, every: bool) -> None:
        """Declare that this rank saves the step, alone or as one of all. Raises CheckpointMismatch."""
        mine = "all" if every else f"rank {self.rank}"
        found = self._store.compare_set(f"{self._keys}/saves/{step}", "", mine).decode()
        if found == mine:
            self._begin(step, every)
            return
        other = "another rank with ranks='all'" if found == "all" else found
        remedy = "Call it on one rank only, or on all with ranks='all'."
        how = "with ranks='all'" if every else "alone"
        raise CheckpointMismatch(f"rank {self.rank} saves step {step} {how}, which {other} saves, too. {remedy}")

    def _begin(self, step: int, every: bool) -> None:
        """Note that this rank has begun a step. The last of all notes that all have: to ask each would take `world` requests."""
        self._store.set(f"{self._keys}/begun/rank {self.rank}", str(step))
        if every and step != self._begun:
            self._begun, count = step, f"{self._keys}/begun/{step}"
            if self._store.add(count, 1) == self.world:
                self._store.delete_key(count)
                self._store.set(f"{self._keys}/begun/all", str(step))

    def _newest(self, savers: str) -> str:
        """The newest step that `savers` have begun: all, or one rank. Empty if there is none."""
        return self._store.compare_set(f"{self._keys}/begun/{savers}", "", "").decode()

    def edition(self) -> str:
        """A mark of this start of the ranks, the same on all: it is in the names of the files that they save."""
        return self._store.compare_set(f"{self._keys}/edition", "", secrets.token_hex(4)).decode()

    def is_over(self, step: int) -> bool:
        """Whether no rank of this start goes on with a save of this step: the rank that saves it has begun a later one, or all have begun
        the same later one, or none has begun it.

        A save of all may wait for the part of a rank that has not begun one yet.
        """
        savers = self._store.compare_set(f"{self._keys}/saves/{step}", "", "").decode()
        newest = self._newest(savers) if savers else ""
        return not savers or (newest != "" and int(newest) > step)

    def has_room(self, step: int, make: Callable[[], bool]) -> bool:
        """Whether a write for `step` is to be tried once more: what `make` returns, which the first rank that asks calls. Others wait.

        It is called again once all ranks have begun another step, as more saves are over then. Raises EndRequested, and what `make` raises.
        """
        key, mine = f"{self._keys}/room/{step}/{self._newest('all')}", f"{_MAKING} {self.rank}"
        if self._store.compare_set(key, "", mine).decode() == mine:
            made = False
            try:
                made = make()
            finally:
                self._store.set(key, _MADE if made else _NOTHING)
            return made

        def is_made() -> bool:
            return not self._store.get(key).decode().startswith(_MAKING)

        with contextlib.suppress(CheckpointError):  # what does not end has perhaps made some
            # A rank that is to stop waits, too: this may be the save for which it has time until it is killed.
            self._wait(is_made, "room", self._is_replaced)
        return self._store.get(key).decode() != _NOTHING

    def gather(self, step: int, part: str) -> list[str] | None:
        """Publish this rank's part of a step that all save. The last rank gets the parts of all; the others None."""
        key = f"{self._keys}/parts/{step}/{{}}".format
        self._store.set(key(self.rank), part)
        if self._store.add(key("count"), 1) < self.world:
            return None
        keys = [key(rank) for rank in range(self.world)]
        parts = [self._store.get(one).decode() for one in keys]
        for one in (*keys, key("count")):
            self._store.delete_key(one)
        return parts

    def picked(self, number: int, pick: Callable[[], Any], trainer: int | None = None) -> Any:
        """The choice number `number`, the same on all ranks: what `pick` returns on the first that asks.

        `trainer`: the trainer of Ray Train for which it is; each has choices of its own, as has the program (None).
        Raises what `pick` raises; CheckpointError where it failed on another rank, or does not end; EndRequested. What failed once fails on
        all ranks. Their next calls pick again.
        """
        key, mine = f"{self._keys}/pick/{trainer}/{self._failed[trainer]}/{number}", f"{_PICKING} {self.rank}"
        found = self._store.compare_set(key, "", mine).decode()
        if found == mine:
            return self._choose(key, pick, trainer)
        self._wait(lambda: not self._store.get(key).decode().startswith(_PICKING), found.replace(_PICKING, "rank"))
        found = self._store.get(key).decode()
        if found.startswith(_FAILED):
            self._failed[trainer] += 1
            raise CheckpointError(found.removeprefix(_FAILED).strip())
        return json.loads(found)

    def _choose(self, key: str, pick: Callable[[], Any], trainer: int | None) -> Any:
        """Publish what `pick` returns, or why it failed. The others are to end, too, where this rank is."""
        try:
            choice = pick()
        except EndRequested:
            raise
        except BaseException as error:
            self._store.set(key, f"{_FAILED} {error}")
            self._failed[trainer] += 1
            raise
        self._store.set(key, json.dumps(choice))
        return choice

    def give_up(self, trainer: int | None = None) -> None:
        """The choice has failed on all ranks alike. Their next calls pick again."""
        self._failed[trainer] += 1

    def agree(self, number: int, vote: Vote, trainer: int | None = None) -> Vote:
        """The worst that any rank finds of a trainer's choice. Collective. Raises CheckpointError, EndRequested."""
        key = f"{self._keys}/votes/{trainer}/{self._failed[trainer]}/{number}/{{}}".format
        self._store.add(key(vote), 1)
        self._store.add(key("all"), 1)
        self._wait(lambda: self._store.add(key("all"), 0) >= self.world, "all ranks: call resume() on each")
        worst: tuple[Vote, ...] = ("removed", "corrupt", "unread")
        return next((one for one in worst if self._store.add(key(one), 0)), "valid")

    def place(self, trainer: int, worker: int) -> None:
        """A worker of Ray Train's trainer runs beside this rank."""
        self._store.set(_WORKER(trainer, worker), str(self.rank))

    def rank_of(self, trainer: int, worker: int) -> int | None:
        """The rank beside which a worker of Ray Train's trainer was placed last; None if it is not known."""
        found = self._store.compare_set(_WORKER(trainer, worker), "", "").decode()
        return int(found) if found else None

    def fetched(self, trainer: int | None = None) -> None:
        """This rank has its copy of the checkpoint from which it continues."""
        self._store.add(f"{self._keys}/fetched/{trainer}", 1)

    def all_fetched(self, trainer: int | None = None) -> bool:
        """Whether no rank reads that checkpoint any more."""
        return self._store.add(f"{self._keys}/fetched/{trainer}", 0) >= self.world

    def _wait(self, is_done: Callable[[], bool], whom: str, is_to_end: Callable[[], bool] | None = None) -> None:
        """Raises CheckpointError, and EndRequested once `is_to_end`. None: once the rank is to stop."""
        is_to_end, deadline = is_to_end or self.is_to_stop, time.monotonic() + WAIT_S
        while not is_done():
            if is_to_end():
                raise EndRequested
            if time.monotonic() >= deadline:
                raise CheckpointError(f"resume() waited {WAIT_S:g} s for {whom}.")
            time.sleep(LOOK_S)
