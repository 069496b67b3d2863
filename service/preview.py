"""What a spec would run as: the checks of a submission, and what follows from it, without a trace in the database."""

from ..workers.models.presets import Architecture
from . import jobs
from .preflight import Checked
from .records import Preview
from .settings import Settings
from .spec import JobSpec
from .store.engine import Store


async def preview(store: Store, settings: Settings, spec: JobSpec) -> Preview:
    """Raises what `jobs.submit` raises of the spec."""
    row, checked = await jobs.new_row(store, settings, spec)
    architecture = _architecture(spec, checked)
    batch, train = checked.batch, spec.train
    tokens = batch.global_batch * train.data.seq_len
    return Preview(
        name=spec.name,
        layout=row["layout"],
        batch=row["batch"],
        world_size=row["world_size"],
        spares=spec.policy.spares,
        global_batch=batch.global_batch,
        data=batch.data,
        microbatches=batch.microbatches,
        micro_batch=batch.micro_batch,
        tokens_per_step=tokens,
        tokens=tokens * train.steps,
        parameters=architecture.parameters if architecture else None,
        forms=list(checked.forms),
        resume=row["resume"],
    )


def _architecture(spec: JobSpec, checked: Checked) -> Architecture | None:
    """None where it cannot be known from here: a module of the user's own, or files that only the trainers see."""
    vocab = spec.train.model.vocab or checked.vocab
    if vocab is None or not checked.seen:
        return None
    return spec.train.architecture(vocab)
