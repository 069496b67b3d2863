"""The checkpoint with which a job begins whose spec names another job: the newest one that is not known to be corrupt or deleted.

A checkpoint that a spec names itself must be valid. Of a job, an older one is taken, as the job's own next attempt takes it.
"""

from typing import Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.checkpoint.retention import step_of
from ...workers.messages.event import CheckpointEvent
from ...workers.storage.folder import Folder
from ...workers.storage.uri import is_bucket
from ..errors import UnknownCheckpoint
from ..queries import checkpoint_catalogue
from ..queries.checkpoint_files import root_of
from ..settings import Settings
from ..spec_files import SpecFiles
from ..store import checkpoints, events
from ..store.engine import Store
from . import resume

_NO_OTHER: Final = (
    "It has no other one: shardyard checkpoints {job} has the state of each. To begin as it did: shardyard clone {job}"
)


async def newest_of_job(store: Store, settings: Settings, job: RowMapping, files: SpecFiles, field: str) -> str:
    """The address of the job's newest usable checkpoint. `field`: of the spec that names the job, for errors.

    Raises UnknownCheckpoint, CheckpointStorageFailed, FilesTooSlow; CheckpointCorrupt and CheckpointDeleted if no other is there.
    """
    root, there = root_of(settings, job["id"], job["spec"]), None
    if settings.local_files and not is_bucket(root):
        there = await files.look(lambda _: resume.complete_checkpoints(root))
    async with store.read() as tx:
        found = await (_reported(tx, job) if there is None else _first_usable(tx, job["id"], there))
        if found is None:
            remedy = "Set checkpoint.every in that job, or wait for its end."
            raise UnknownCheckpoint(f"{job['id']} has no complete checkpoint.", field=field, remedy=remedy)
        await checkpoint_catalogue.refuse_unusable_path(tx, found, field, remedy=_NO_OTHER)
    return found


async def _first_usable(tx: AsyncConnection, job_id: str, there: list[Folder]) -> str | None:
    """The first of these checkpoints that is present; the first one if none is."""
    states = await checkpoint_catalogue.states(tx, job_id, [step_of(path) for path in there])
    usable = [path for path in there if states[step_of(path)] == checkpoint_catalogue.PRESENT]
    return next((path.where for path in usable or there), None)


async def _reported(tx: AsyncConnection, job: RowMapping) -> str | None:
    """The newest checkpoint that is present, by what the job's gangs reported; the last that they reported if none is."""
    step = await checkpoints.newest(tx, job["id"], checkpoint_catalogue.PRESENT)
    saved = None if step is None else await events.of_step(tx, job["id"], CheckpointEvent.kind, step)
    last: str | None = job["checkpoint"]
    return last if saved is None else str(saved["data"]["path"])
