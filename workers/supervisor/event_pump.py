"""What the supervisor hears of its ranks: each one's events pulled in order, and what follows from each.

Rules that it keeps: an event is acknowledged only when what follows from it is in the journal; what a trainer of an older generation
still says counts for nothing; a rank that is lost, or says that it failed, ends the generation.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ..messages.event_buffer import Event, Ranks, Spool
from ..messages.rendezvous import Coords
from .event_merger import Story
from .hang_watchdog import ANSWER_S, PULL_S, within
from .journal.journal import GATHER_S, Journal
from .policies.failures import Failure, brief, ending, raised
from .policies.hang import Progress
from .policies.loss_spike import Spikes
from .policies.straggler import Stragglers
from .rank_samples import Samples, places
from .ranks.members import Member, keeper, keeps
from .ranks.placement_group import Order
from .ranks.spares import Spares
from .trace_orders import Traces


class Gang(Protocol):
    """What is needed of the supervisor."""

    order: Order
    journal: Journal
    spool: Spool
    story: Story
    members: list[Member]
    spares: Spares
    progress: Progress
    stragglers: Stragglers
    spikes: Spikes
    traces: Traces
    samples: Samples
    pull_s: float
    generation: int

    @property
    def phase(self) -> str: ...

    def fail(self, failure: Failure) -> None: ...

    def end_when_done(self) -> None: ...


class Hearing:
    """Follows each rank until its trainer has ended."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang

    async def follow(self, member: Member, coords: Coords | None) -> None:
        """Give the rank its orders, unless `coords` is None, and pull its events until its trainer has ended."""
        from ray.exceptions import RayError

        try:
            await self.gang.journal.settled()
            if coords is not None:
                buddy, others = keeper(self.gang.members, member), keeps(self.gang.members, member)
                handle = None if buddy is None else buddy.actor
                await self._call(member.actor.start.remote(self.gang.order.run, coords.to_json(), handle, others))
            while not member.exited:
                if not await self.gang.spool.room(self.gang.pull_s):
                    await self._call(member.actor.beat.remote())
                    continue
                events = await self._call(member.actor.pull.remote(member.pulled, self.gang.pull_s))
                for event in events:
                    member.pulled = event["seq"]
                    self._take(member, event)
                # The next pull acknowledges; after nothing but steps it is in no haste.
                await self.gang.journal.settled(GATHER_S if _only_steps(events) else 0.0)
        except (RayError, TimeoutError) as error:
            self.lose(member, f"the rank's actor is lost: {brief(error)}")
        except Exception as error:  # a fault of ours must not leave the gang waiting for this rank
            self.gang.fail(Failure("gang_error", member.rank, brief(error), member.node))
            raise

    async def _call(self, reference: Awaitable[Any]) -> Any:
        return await within(PULL_S + ANSWER_S, reference)

    def _take(self, member: Member, event: Event) -> None:
        actions: dict[str, Callable[[Member, Event], None]] = {
            "step": self._take_step,
            "failed": self._take_failed,
            "done": self._take_done,
            "stopped": self._take_stopped,
            "exit": self._take_exit,
            "log": self._take_log,
            "trace": self.gang.traces.hear,
            "traced": self.gang.traces.hear_end,
        }
        actions.get(event["kind"], self._take_fact)(member, event)

    def _take_log(self, member: Member, event: Event) -> None:
        member.log.extend(event["data"]["lines"])
        self.gang.story.log(event)

    def _take_step(self, member: Member, event: Event) -> None:
        member.step = int(event["data"]["step"])
        self.gang.spares.training(self.gang.phase == "training")
        self.gang.progress.stepped(float(event["data"].get("step_s") or 0.0))
        for ranks in self.gang.story.step(member.rank, event):
            self._look_at(ranks)

    def _look_at(self, ranks: Ranks) -> None:
        """What a whole step shows that is worth a word."""
        self._tell_sample(self.gang.samples.add(ranks))
        found = [one.failure(self.gang.members[one.rank].node) for one in self.gang.stragglers.add(ranks)]
        spike = self.gang.spikes.add(ranks.get(0, {}))
        for failure in [*found, *([spike] if spike else [])]:
            self.gang.story.tell_incident(failure, self.gang.generation, [])

    def _tell_sample(self, sample: dict[str, Any] | None) -> None:
        if sample is not None:
            self.gang.story.tell_ranks(sample | places([member.node for member in self.gang.members]))

    def rest(self) -> None:
        """At a generation's end: what waited for ranks that will not report any more, and for company."""
        self.gang.story.rest()
        self._tell_sample(self.gang.samples.rest())

    def _take_fact(self, member: Member, event: Event) -> None:
        self.gang.story.fact(event, member.step)

    def _take_failed(self, member: Member, event: Event) -> None:
        member.failed = True
        accused = event["data"].get("facts", {}).get("rank", member.rank)
        self.gang.fail(raised(event["data"], accused, None if accused is None else self.gang.members[accused].node))

    def _take_done(self, member: Member, _: Event) -> None:
        member.done = True
        self.gang.end_when_done()

    def _take_stopped(self, member: Member, _: Event) -> None:
        member.stopped = True

    def _take_exit(self, member: Member, event: Event) -> None:
        if member.reservation and event["data"]["generation"] < member.reservation.generation:
            return  # of a trainer that a dead supervisor had asked for
        member.exited = True
        if not member.done and not member.failed:
            self.gang.fail(Failure("rank_lost", member.rank, ending(event["data"]["status"]), member.node))

    def lose(self, member: Member, message: str) -> None:
        member.exited = member.lost = True
        if self.gang.phase != "ending":  # a dead supervisor may have removed it already
            self.gang.fail(Failure("rank_lost", member.rank, message, member.node))


def _only_steps(events: Sequence[Event]) -> bool:
    return all(event["kind"] == "step" for event in events)
