"""Options of a spec that have no effect: the job runs, though hardly as its author meant."""

from collections.abc import Iterator

from ...workers.spec import TrainSpec
from ..schemas.problem import FieldError


def warnings(train: TrainSpec) -> list[FieldError]:
    """One for each such option, by field and with a remedy."""
    found = (*_schedule(train), *_layout(train), *_rhythms(train))
    return [FieldError(field=f"train.{field}", message=message, remedy=remedy) for field, message, remedy in found]


_Found = Iterator[tuple[str, str, str]]


def _schedule(train: TrainSpec) -> _Found:
    schedule, steps = train.schedule, train.steps
    if schedule.warmup >= steps > 1:
        told = f"The warm-up of {schedule.warmup} steps is as long as the run of {steps}"
        said = told if schedule.warmup == steps else told.replace("as long as", "longer than")
        never = "" if schedule.warmup == steps else " and the peak learning rate is never reached"
        yield "schedule.warmup", f"{said}: the rate only rises{never}.", f"Use less than {steps}, or more steps."
    if schedule.name == "constant" and schedule.min_ratio != type(schedule).model_fields["min_ratio"].default:
        yield "schedule.min_ratio", "A constant schedule ignores it.", "Leave it out, or use cosine or linear."


def _layout(train: TrainSpec) -> _Found:
    layout = train.layout
    if layout.pipeline == 1 and layout.schedule != type(layout).model_fields["schedule"].default:
        told = f"{layout.schedule} has no effect without a pipeline."
        yield "layout.schedule", told, "Set layout.pipeline to 2 or more, or leave it out."


def _rhythms(train: TrainSpec) -> _Found:
    every = (
        ("eval.every", train.eval.every, "validation is at the end alone"),
        ("checkpoint.every", train.checkpoint.every, "nothing is saved before the end"),
        ("snapshot.every", train.snapshot.every, "there is never one"),
    )
    for field, steps, so in every:
        if steps is not None and steps > train.steps:
            yield (
                field,
                f"{steps} is more than the {train.steps} steps of the run: {so}.",
                f"Use {train.steps} or less.",
            )
