"""Finds what a spec's author may not mean, although the job runs: options without effect, or that change what is optimised, and more."""

from collections.abc import Iterator

from ...strategies.layout import Layout
from ...workers import own_plan
from ...workers.spec import TrainSpec
from ..schemas.problem import FieldError
from ..spec import AnySpec, JobSpec
from . import command_warnings, rank_environment


def warnings(spec: AnySpec) -> list[FieldError]:
    """One finding for each, with its field and a remedy."""
    of_kind = _of_train(spec.train) if isinstance(spec, JobSpec) else command_warnings.warnings(spec)
    return [*of_kind, *rank_environment.warnings(spec.resources.env)]


def _of_train(train: TrainSpec) -> list[FieldError]:
    found = (*_schedule(train), *(() if train.undecided else _layout(train)), *_rhythms(train), *_planned(train))
    return [FieldError(field=f"train.{field}", message=message, remedy=remedy) for field, message, remedy in found]


_Found = Iterator[tuple[str, str, str]]


def _schedule(train: TrainSpec) -> _Found:
    schedule, steps = train.schedule, train.steps
    if schedule.warmup >= steps > 1:
        longer = "as long as" if schedule.warmup == steps else "longer than"
        message = f"The warm-up of {schedule.warmup} steps is {longer} the run of {steps}"
        never = "" if schedule.warmup == steps else " and the peak learning rate is never reached"
        yield "schedule.warmup", f"{message}: the rate only rises{never}.", f"Use less than {steps}, or more steps."
    if schedule.name == "constant" and schedule.min_ratio != type(schedule).model_fields["min_ratio"].default:
        yield (
            "schedule.min_ratio",
            "A constant schedule ignores min_ratio.",
            "Leave min_ratio out, or use cosine or linear.",
        )


def _layout(train: TrainSpec) -> _Found:
    layout = train.layout
    if layout.pipeline == 1 and layout.schedule != type(layout).model_fields["schedule"].default:
        message = f"{layout.schedule} has no effect without a pipeline."
        yield "layout.schedule", message, "Set layout.pipeline to 2 or more, or leave layout.schedule out."
    if layout.pipeline == 1 and layout.pipeline_split == "profile":
        message = "A split by profile has no effect without a pipeline."
        yield "layout.pipeline", message, "Use stages of 2 or more, or leave layout.pipeline out."
    if layout.tensor == 1 and train.overlap.tensor_chunks > 1:
        message = "Chunks of positions have no effect without tensor parallelism."
        yield "overlap.tensor_chunks", message, "Set layout.tensor to 2 or more, or leave overlap.tensor_chunks out."
    if layout.versions > 1:
        applies = f"{layout.schedule} applies each gradient {_late(layout)} after the weights that it was taken at"
        yield (
            "layout.schedule",
            f"{applies}: the optimisation changes.{_in_turn(train)}{_meeting_ends(train)}",
            "Compare the loss with 1f1b's, and lower optimizer.lr if it is worse.",
        )
    smaller = layout.zero_plus_plus
    rounded = [word for word in ("weights", "gradients") if smaller is not None and getattr(smaller, word)]
    if rounded:
        message = f"ZeRO++ rounds {' and '.join(rounded)} to few bits when they are sent: losses differ from those without it."
        yield (
            "layout.zero_plus_plus",
            message,
            "Compare the loss with ZeRO's, and use more bits or smaller blocks if it is worse.",
        )
    yield from _own_clocks(train)


def _late(layout: Layout) -> str:
    """After how many steps a schedule with delayed gradients applies them."""
    most = 1 if layout.schedule == "2bw" else layout.pipeline - 1
    steps = "one step" if most == 1 else f"{most} steps"
    return steps if layout.schedule == "2bw" or layout.vertical_sync else f"up to {steps}"


def _in_turn(train: TrainSpec) -> str:
    """What else pipedream costs where all of its ranks end a step together."""
    if train.layout.schedule != "pipedream" or train.ends_apart:
        return ""
    why = "documents are packed" if train.data.is_packed else "gradients are clipped"
    takes = f"a step takes a forward pass and {train.layout.pipeline} backward passes, of which a rank runs one each"
    faster = "" if _tied(train) else ", and so is pipedream with optimizer.clip_norm: null and data that is not packed"
    return f" As {why}, {takes}: 1f1b is faster{faster}."


def _meeting_ends(train: TrainSpec) -> str:
    """What a weight of both ends costs where the ranks of a pipeline otherwise end a step at different times."""
    if not (train.ends_apart and _tied(train)):
        return ""
    passes = train.layout.pipeline - 1
    bubble = "a bubble of a backward pass" if passes == 1 else f"a bubble of {passes} backward passes"
    return f" As the embedding is tied, both ends of the pipeline wait for each other in each step, which has {bubble}."


def _tied(train: TrainSpec) -> bool:
    """Whether the embedding and the head share a weight, as far as the spec says it: the files of `model.from` are not read here."""
    if train.model.from_ is not None:
        return train.model.tied is True
    architecture = train.architecture(vocab=256)
    return architecture is not None and architecture.tied


def _own_clocks(train: TrainSpec) -> _Found:
    options, workers = train.layout.parameter_server, train.layout.data
    if options is None or options.ahead is None:
        return
    if workers > 1:
        late = f"up to {(2 * options.ahead + 1) * (workers - 1):,}"
        yield (
            "layout.parameter_server",
            f"mode {options.mode} makes {train.layout.elastic or workers} updates in a step, each by the gradients of one worker, {late} "
            "updates of others after the values that they were taken at: the optimisation changes"
            + (", and again with the number of workers." if train.layout.elastic else "."),
            "Compare the loss with mode: sync, and lower optimizer.lr if it is worse.",
        )
    if train.replica_check.every:
        message = "Workers with clocks of their own have values of different steps, so replicas are never compared."
        yield "replica_check.every", message, "Leave replica_check.every out."


def _rhythms(train: TrainSpec) -> _Found:
    every = (
        ("eval.every", train.eval.every, "validation happens only at the end"),
        ("checkpoint.every", train.checkpoint.every, "nothing is saved before the end"),
        ("snapshot.every", train.snapshot.every, "no snapshot is ever taken"),
    )
    for field, steps, so in every:
        if steps is not None and steps > train.steps:
            yield (
                field,
                f"{steps} is more than the {train.steps} steps of the run: {so}.",
                f"Use {train.steps} or less.",
            )


def _planned(train: TrainSpec) -> _Found:
    if train.planned is not None and own_plan.kept(train).planned is None:
        message = "The memory plan is of another spec, so it is left out."
        yield "planned", message, "Leave planned out: the command line and the Python client set it."
