"""Previews a spec: the checks of a submission and the resulting layout and batch. Stores nothing."""

from dataclasses import asdict

from ...workers import own_plan
from ...workers.program.program import shown
from ..layout_choice import layout_choice
from ..schemas.preview import ElasticLayout, Preview
from ..settings import Settings
from ..spec import AnySpec, CommandSpec
from ..spec_files import SpecFiles
from ..store.engine import Store
from . import command_job, submit
from .spec_warnings import warnings


async def preview(store: Store, settings: Settings, spec: AnySpec, files: SpecFiles) -> Preview:
    """The preview. Raises what `submit` raises for the spec."""
    if isinstance(spec, CommandSpec):
        return await _of_command(store, settings, spec, files)
    new = await submit.new_row(store, settings, spec, files)
    row, checked, train = new.row, new.checked, spec.train
    batch, architecture = checked.batch, checked.architecture
    planned = own_plan.kept(train).planned
    tokens = batch.global_batch * train.data.tokens_per_sample
    return Preview(
        name=spec.name,
        layout=row["layout"],
        layout_choice=layout_choice(row["spec"]),
        batch=row["batch"],
        world_size=row["world_size"],
        spares=spec.policy.spares,
        global_batch=batch.global_batch,
        data=batch.data,
        microbatches=batch.microbatches,
        micro_batch=batch.micro_batch,
        tokens_per_step=tokens,
        tokens=tokens * train.steps,
        parameters=architecture.parameters if architecture else planned.parameters if planned else None,
        precision=new.choices.train.precision.compute,
        compile=new.choices.train.compile is True,
        choices=[*new.choices.reasons],
        memory=new.plan.record() if new.plan else None,
        needs_dry_run=new.plan is None and train.model.import_ is not None,
        elastic_layouts=[ElasticLayout(**asdict(layout)) for layout in checked.elastic_layouts],
        resume=row["resume"],
        warnings=[*new.warnings, *warnings(spec)],
    )


async def _of_command(store: Store, settings: Settings, spec: CommandSpec, files: SpecFiles) -> Preview:
    row = await command_job.new_row(store, settings, spec, files, uploaded=False)
    return Preview(
        name=spec.name,
        layout=row["layout"],
        batch=row["batch"],
        world_size=row["world_size"],
        spares=spec.policy.spares,
        command=[*shown(spec.command)],
        elastic_layouts=[ElasticLayout(**one) for one in row["elastic"] or ()],
        resume=row["resume"],
        warnings=warnings(spec),
    )
