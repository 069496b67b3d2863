"""Logged files in the store: once by name and step, the newest wins, bounded, in pages; on both databases."""

from dataclasses import replace
from typing import Any

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.policies.limits import ArtifactLimits, Rules
from shardyard.service.queries import artifacts
from shardyard.service.queries.incidents import incidents
from shardyard.service.schemas.artifact import LoggedArtifact
from shardyard.service.schemas.job import Job
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.workers.messages.artifact import Artifact
from shardyard.workers.messages.event import ArtifactsEvent, to_json

from ..gang_events import event_batch, state


def file(name: str, step: int | None = None, **known: Any) -> Artifact:
    return Artifact(name=name, step=step, **{"bytes": 1, "sha256": "a" * 64} | known)


def stored(*files: Artifact, rank: int = 0, generation: int = 1) -> tuple[str, Any]:
    return "artifacts", to_json(ArtifactsEvent(rank=rank, generation=generation, artifacts=files))


async def everything(store: Store, job: Job, **wanted: Any) -> list[LoggedArtifact]:
    found: list[LoggedArtifact] = []
    after: str | None = None
    while True:
        page = await artifacts.page(store, job.id, after=after, **wanted)
        found += page.items
        if (after := page.next) is None:
            return found


async def test_a_name_and_step_is_stored_once_and_the_newest_wins(store: Store, placed: tuple[Job, Lease]) -> None:
    """Also if a batch comes again, and if a rank logs it again after a repair."""
    job, lease = placed
    again = stored(file("a", 3, sha256="c" * 64, bytes=5), rank=1, generation=2)
    late = stored(file("a", 3, sha256="d" * 64))
    batch = event_batch(
        state("starting"), state("running"), stored(file("a", 3), file("a"), file("a", 3, sha256="b" * 64)), again, late
    )
    for cut in (3, 3, 4, 4, 5):
        await ingest(store, lease, 1, batch[:cut])
    found = await everything(store, job)
    assert [(one.name, one.step, one.sha256[0], one.rank, one.bytes) for one in found] == [
        ("a", None, "a", 0, 1),
        ("a", 3, "c", 1, 5),
    ]


async def test_pages_have_all_files_once_by_prefix_and_type(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    files = [
        file(f"{name}_%/x", step, type=kind)
        for name in "ab"
        for step, kind in ((None, "file"), (1, "image"), (2, "image"))
    ]
    await ingest(store, lease, 1, event_batch(state("starting"), stored(*files)))
    found = await everything(store, job, limit=2)
    assert [(one.name, one.step) for one in found] == [(one.name, one.step) for one in files]
    assert [(one.name, one.step) for one in await everything(store, job, limit=1, kind="image", prefix="b_%")] == [
        ("b_%/x", 1),
        ("b_%/x", 2),
    ]
    assert not await everything(store, job, prefix="%")


async def test_files_beyond_the_limits_are_not_listed_and_an_incident_says_so(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    rules = replace(Rules(), artifacts=ArtifactLimits(bytes=10, files=2))
    files = [file("a"), file("b", bytes=7), file("c"), file("b", bytes=11), file("a", bytes=3)]
    await ingest(store, lease, 1, event_batch(state("starting"), *(stored(one) for one in files)), rules)
    assert [(one.name, one.bytes) for one in await everything(store, job)] == [("a", 3), ("c", 1)]
    await ingest(store, lease, 1, event_batch(state("starting"), *(stored(one) for one in [*files, *files])), rules)
    (said,) = (await incidents(store, job.id)).items  # once in an attempt
    assert said.cause == "artifacts_dropped" and "2 files and 10 bytes" in (said.summary or "")


async def test_a_gang_cannot_name_a_path_that_leads_elsewhere(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    hostile = [file("../x"), file("a", sha256="../" * 21 + "x"), file("a", -1), file("a", bytes=-1)]
    await ingest(
        store, lease, 1, event_batch(state("starting"), *(stored(one) for one in hostile), stored(file("good")))
    )
    assert [one.name for one in await everything(store, job)] == ["good"]
    assert [one.cause for one in (await incidents(store, job.id)).items] == ["invalid_event"] * 4
