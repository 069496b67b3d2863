"""A job whose gang has reported everything that a client can read."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.rank_metrics import slow_rank_events
from harness.stored_checkpoints import FILE, save_checkpoint
from harness.trace_events import trace_events

from shardyard.api.client import Client
from shardyard.workers.checkpoint.manifest import File, Manifest

from ..conftest import SPEC, Gang, Plane

#: A file that the job's program logged.
NOTES = b"a note"
#: The manifest of its checkpoint.
WEIGHTS = Manifest(10, {}, {}, {FILE: File(7, hashlib.sha256(b"weights").hexdigest(), ())})


@pytest.fixture
def recorded(plane: Plane, client: Client) -> Iterator[tuple[str, str]]:
    """A running job that has reported something of each kind, and its trace."""
    job = client.submit({**SPEC, "name": "tiny"}).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.emit(("checkpoint", {"step": 10, "path": f"/somewhere/{job}/step-00000010"}))
    save_checkpoint(Path(plane.settings.storage) / job, WEIGHTS.step, b"weights")
    gang.emit(("plan", {"parameters": 7, "tokens_per_step": 512, "train_tokens": 9000, "validation_tokens": 900}))
    digest = hashlib.sha256(NOTES).hexdigest()
    folder = Path(plane.settings.artifacts(job))
    folder.mkdir(parents=True)
    (folder / digest).write_bytes(NOTES)
    logged = {"name": "notes.txt", "step": 3, "bytes": len(NOTES), "sha256": digest}
    gang.emit(("artifacts", {"rank": 0, "generation": 1, "artifacts": [logged]}))
    gang.state("running")
    gang.steps(1, 20)
    gang.log(0, 1, "all is well", "ERROR: out of cheese", "on it goes")
    gang.log(1, 1, "error: none here")
    gang.emit(*slow_rank_events(2, 20, slow=1), ("eval", {"step": 20, "loss": 0.5, "unigram_loss": 3.0}))
    trace = client.trace(job).id
    gang.emit(*trace_events(trace))
    yield job, trace
