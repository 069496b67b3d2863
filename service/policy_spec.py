"""The `policy` of a job's spec: what follows a fault. Imports no torch and no Ray."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from ..strategies.layout import Refusal
from ..workers.spec_part import SpecPart
from . import durations

#: Seconds: 3650 days.
_LONGEST_S: Final = 3650 * 86_400


def _read_duration(given: Any) -> Any:
    """Text for a number of seconds; any other value unchanged. Raises Refusal for text that is no duration."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = f"{given}s"
    if not isinstance(given, str):
        return given
    found = durations.seconds(given)
    if found is None or not 1 <= found <= _LONGEST_S:
        what = "is not a duration" if found is None else "is not between 1s and 3650d"
        raise Refusal("", f"{given!r:.80} {what}.", "Write 90s, 30m, 8h, 2d or 1h30m, or a number of seconds.")
    return given


DurationText = Annotated[str, StringConstraints(max_length=64, pattern=durations.PATTERN)]
Duration = Annotated[DurationText, BeforeValidator(_read_duration, json_schema_input_type=DurationText | float)]


class StragglerPolicy(SpecPart):
    """When a rank that computes more slowly than its peers is reported as an incident. The gang is not repaired for it."""

    factor: float = Field(
        1.5,
        gt=1,
        le=100,
        description="Its compute time divided by that of ranks with an equal share of the work, or by its own earlier one.",
    )
    steps: int = Field(
        20, ge=5, le=10_000, description="Number of recent steps; the rank must be slow in nearly all of them."
    )
    seconds: float = Field(30.0, ge=0, le=86_400, description="Minimum duration of the slowness, in seconds.")


class LossSpikePolicy(SpecPart):
    """When a step whose loss rises far above the losses before it is reported as an incident. Training continues."""

    window: int = Field(100, ge=32, le=10_000, description="Number of earlier steps that the loss is compared with.")
    deviations: float = Field(
        10.0,
        gt=0,
        le=1000,
        description="Number of standard deviations (estimated by the median absolute deviation) above the median; at least 5% above it.",
    )


class CommonPolicy(SpecPart):
    """What follows a fault, for every kind of job."""

    max_duration: Duration | None = Field(
        None,
        description="Time for which the job may hold devices, such as 90s, 30m, 8h or 2d, or a number of seconds: all attempts together, "
        "each from its placement to its end. Time in the queue and paused time do not count. Then the job saves what it saves when it is "
        "paused, ends, and has failed with `max_duration_exceeded`. null: no limit.",
    )
    max_restarts: int = Field(
        3,
        ge=0,
        le=1000,
        description="New attempts after machine faults that no repair in place ended, at most; those of the whole cluster do not count.",
    )
    max_retries: int = Field(
        0,
        ge=0,
        le=1000,
        description="New attempts after exceptions of the training code or of the command, at most. In training, the same one at the same "
        "step fails the job; steps of a command are not known.",
    )
    spares: int = Field(
        0,
        ge=0,
        le=1000,
        description="Number of hot spares: rank actors on devices that do not train. A spare replaces a rank actor that dies, "
        "so that the repair does not wait for a new process.",
    )
    elastic_grace_s: float = Field(
        60.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        description="For an elastic job, whose layout.data or ranks is a range: seconds that devices are missing before it continues "
        "with fewer, and seconds that devices are free before it takes more.",
    )


class Policy(CommonPolicy):
    max_repairs: int = Field(
        20,
        ge=0,
        le=100_000,
        description="Repairs in place per attempt, at most: a lost rank is replaced, and training continues from memory.",
    )
    hang_timeout_s: float | None = Field(
        30.0,
        ge=1,
        le=86_400,
        description="Seconds without progress, or five median steps if that is longer, after which a gang is examined as hung: "
        "the incident names the cause, and the gang is repaired. null: never.",
    )
    preflight: bool | Literal["auto"] = Field(
        "auto",
        description="Whether an attempt times the collectives of its process groups before it trains: a slow node or link is then an "
        "incident. auto: after two incidents of the job on the same node.",
    )
    # A factory, so that the schema shows no object as the default of what may be null: generators of clients drop such a field's parents.
    straggler: StragglerPolicy | None = Field(
        default_factory=StragglerPolicy,
        description="When a slow rank is reported as an incident. null: never.",
    )
    loss_spike: LossSpikePolicy | None = Field(
        default_factory=LossSpikePolicy, description="When a loss spike is reported as an incident. null: never."
    )


class CommandPolicy(CommonPolicy):
    """What follows a fault of a job that runs a command."""

    max_repairs: int = Field(
        20,
        ge=0,
        le=100_000,
        description="Repairs in place per attempt, at most: a lost rank is replaced, and the command starts again on all ranks.",
    )
    hang_timeout_s: float | None = Field(
        600.0,
        ge=1,
        le=86_400,
        description="Seconds in which no rank prints anything and no collective of torch begins or ends, after which a gang is examined as "
        "hung: the incident names the cause, and the command starts again. A program without torch.distributed never counts as hung. "
        "null: never.",
    )
