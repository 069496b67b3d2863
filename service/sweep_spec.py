"""The part `sweep` of a document: which parameters vary over which values, and when a trial is stopped early.

The rest of the document is the spec of a job, of which each trial is one. Imports no torch and no Ray.
"""

import math
from itertools import takewhile
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from ..strategies.layout import Refusal
from ..workers.spec_part import PLAIN_TEXT, Finite, SpecPart
from .spec import CommandSpec, JobSpec

#: Maximum number of trials of a sweep.
MOST_TRIALS: Final = 1000
#: Trials of a sweep that does not say how many.
_TRIALS: Final = 16
#: Whole numbers up to this one are exact as floats, with which ranges are drawn.
_EXACT: Final = 2**53
#: How the paths of environment variables, and of the parts of a command, begin.
_TEXTS: Final = ("resources.env.", "command[")

#: A key of the job's spec, such as `train.optimizer.lr` or `command[3]`.
ParameterPath = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=255,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\[[0-9]{1,4}\])*(\.[A-Za-z_][A-Za-z0-9_]*(\[[0-9]{1,4}\])*)*$",
    ),
]
MetricName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=PLAIN_TEXT)]
Choice = Annotated[str, StringConstraints(max_length=4096, pattern=PLAIN_TEXT)] | bool | int | Finite


class Parameter(SpecPart):
    """The values of a parameter: a list of them, or a range. A plain list such as `[1, 2]` is its values."""

    values: Annotated[list[Choice], Field(min_length=1, max_length=MOST_TRIALS)] | None = Field(
        None, description="All values that it may have. null: a range, by `min` and `max`."
    )
    min: int | Finite | None = Field(
        None, description="Lowest value of a range. Whole numbers at both ends: only whole numbers are drawn."
    )
    max: int | Finite | None = Field(None, description="Highest value of a range.")
    scale: Literal["linear", "log"] = Field(
        "linear",
        description="`log`: the logarithm is drawn evenly, so that each power of ten is as likely as the next.",
    )
    count: int | None = Field(
        None, ge=2, le=MOST_TRIALS, description="Number of values, from `min` to `max`, that a grid takes of a range."
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "Parameter":
        if self.values is not None:
            given = [name for name in ("min", "max", "count") if getattr(self, name) is not None]
            if given:
                raise Refusal(
                    given[0], "The parameter has both values and a range.", f"Leave out values, or {', '.join(given)}."
                )
            return self
        for name in ("min", "max"):
            if getattr(self, name) is None:
                raise Refusal(name, "The parameter has no values.", "Write a list of values, or min and max.")
        assert self.min is not None and self.max is not None
        for name, end in (("min", self.min), ("max", self.max)):
            if isinstance(end, int) and abs(end) > _EXACT:
                raise Refusal(name, f"It is beyond {_EXACT}.", "Give a smaller number, or a list of values.")
        if self.min >= self.max:
            raise Refusal(
                "max", f"{self.max} is not more than min, {self.min}.", "Give a larger max, or a list of values."
            )
        if self.scale == "log" and self.min <= 0:
            raise Refusal("min", f"{self.min} has no logarithm.", "Give a min above 0, or scale: linear.")
        if not math.isfinite(self.max / self.min if self.scale == "log" else self.max - self.min):
            raise Refusal("max", f"From {self.min} to {self.max} is too wide a range.", "Give ends that are closer.")
        return self

    @property
    def whole(self) -> bool:
        """Whether a range has whole numbers only."""
        return isinstance(self.min, int) and isinstance(self.max, int)

    def at(self, where: float) -> Any:
        """The value at a place from 0 (the first, or lowest) to below 1: each value of a list, and each whole number, has an equal part."""
        if self.values is not None:
            return self.values[min(int(where * len(self.values)), len(self.values) - 1)]
        assert self.min is not None and self.max is not None
        low, high = float(self.min), float(self.max) + self.whole
        value = low * (high / low) ** where if self.scale == "log" else low + (high - low) * where
        return min(math.floor(value), int(self.max)) if self.whole else min(value, float(self.max))

    def grid(self) -> list[Any]:
        """The values that a grid takes, each once."""
        if self.values is not None:
            return list(self.values)
        assert self.min is not None and self.max is not None
        if self.count is None:
            return list(range(int(self.min), int(self.max) + 1))
        low, high, last = float(self.min), float(self.max), self.count - 1
        step = [at / last for at in range(self.count)]
        found = [low * (high / low) ** at if self.scale == "log" else low + (high - low) * at for at in step[:-1]]
        values: list[Any] = [*found, high]
        return list(dict.fromkeys(round(value) for value in values)) if self.whole else values

    @property
    def grid_size(self) -> int | None:
        """The number of values that a grid takes, or a bound of it; None if that is not given."""
        if self.values is not None:
            return len(self.values)
        return self.count or (int(self.max or 0) - int(self.min or 0) + 1 if self.whole else None)

    def ends(self) -> list[Any]:
        """Values of which at least one is refused if any value is, as far as bounds and types go."""
        return list(self.values) if self.values is not None else [self.min, self.max]


def _read_parameter(given: Any) -> Any:
    """The object for a plain list; any other value unchanged."""
    return {"values": given} if isinstance(given, list) else given


class Asha(SpecPart):
    """Early stopping by asynchronous successive halving.

    Li et al., "A System for Massively Parallel Hyperparameter Tuning" (2020), algorithm 2.
    """

    min_steps: int = Field(
        ge=1, description="Step of the first rung, at which a trial is compared with others for the first time."
    )
    reduction: int = Field(
        3,
        ge=2,
        le=64,
        description="Of the trials that reached a rung, the best 1/reduction continue; the next rung is at reduction times its step.",
    )
    max_steps: int | None = Field(
        None, ge=2, description="Steps of a trial that is never stopped. null: `train.steps`; a command has to give it."
    )
    losers: Literal["pause", "cancel"] = Field(
        "pause",
        description="What happens to a trial that does not continue. `pause`: it saves, and continues later if it is among the best by "
        "then. `cancel`: it ends, for programs that cannot continue.",
    )

    def rungs(self, max_steps: int) -> list[int]:
        """The steps at which trials are compared, below `max_steps`."""
        steps = (self.min_steps * self.reduction**rung for rung in range(64))
        return list(takewhile(lambda step: step < max_steps, steps))


class Sweep(SpecPart):
    """Many trials of one job, each with other values of some of its parameters."""

    parameters: Annotated[
        dict[
            ParameterPath,
            Annotated[Parameter, BeforeValidator(_read_parameter, json_schema_input_type=Parameter | list[Choice])],
        ],
        Field(min_length=1, max_length=32),
    ] = Field(
        description="The keys of the job's spec that vary, such as `train.optimizer.lr`, and their values. A command finds "
        "`resources.env.LR` in the environment variable LR."
    )
    search: Literal["grid", "random", "sobol", "optuna"] = Field(
        "random",
        description="`grid`: all combinations. `random`: independent draws. `sobol`: a sequence that covers the space evenly (scrambled). "
        "`optuna`: Optuna's TPE, which learns from the trials before; it needs the extra `sweeps`.",
    )
    trials: int | None = Field(
        None, ge=1, le=MOST_TRIALS, description=f"Number of trials. null: {_TRIALS}; of a grid all combinations."
    )
    seed: int = Field(
        0,
        ge=0,
        lt=2**31,
        description="Seed of the draws. The same seed gives the same trials; optuna's depend on results.",
    )
    metric: MetricName | None = Field(
        None,
        description="What is compared: `loss`, `validation_loss`, or a metric that the job logs. null: `loss`; a command has to give it.",
    )
    goal: Literal["minimize", "maximize"] = Field("minimize", description="Whether lower or higher values are better.")
    parallel: int = Field(
        8, ge=1, le=256, description="Number of trials, at most, that run or wait in the queue at the same time."
    )
    asha: Asha | None = Field(
        default_factory=lambda: None,
        description="Stops trials early whose metric is worse than that of others. null: all run to their end.",
    )

    @model_validator(mode="after")
    def _grid_is_finite(self) -> "Sweep":
        if self.search != "grid":
            return self
        combinations = 1
        for path, parameter in self.parameters.items():
            number = parameter.grid_size
            if number is None:
                remedy = "Add count, such as count: 5."
                raise Refusal(
                    f"parameters.{path}", "A grid needs to know how many values to take of the range.", remedy
                )
            combinations *= number
            if combinations > MOST_TRIALS:
                message = f"The grid has more than {MOST_TRIALS} combinations."
                raise Refusal(f"parameters.{path}", message, "Give fewer values, or search: sobol.")
        return self

    @property
    def number_of_trials(self) -> int:
        if self.search != "grid":
            return self.trials or _TRIALS
        whole = math.prod(len(parameter.grid()) for parameter in self.parameters.values())
        return min(whole, self.trials or whole)

    def better(self, value: float, other: float) -> bool:
        return value < other if self.goal == "minimize" else value > other


class SweepOfTraining(JobSpec):
    """A sweep over a training job, as YAML or JSON: the job's spec, and `sweep`."""

    sweep: Sweep


class SweepOfCommand(CommandSpec):
    """A sweep over a job that runs a command, as YAML or JSON: the job's spec, and `sweep`."""

    sweep: Sweep


def with_values(document: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A copy of a job's spec with these values at their paths. Raises Refusal for a path through what is no mapping or list.

    Numbers are text in an environment variable and in a command, where a spec has text only.
    """
    for path, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        document = _with(document, _parts(path), str(value) if number and takes_text(path) else value, path)
    return document


def takes_text(path: str) -> bool:
    """Whether the path is that of an environment variable, or of a part of a command."""
    return path.startswith(_TEXTS)


def _parts(path: str) -> list[str | int]:
    return [
        int(part[:-1]) if part.endswith("]") else part for part in path.replace("[", ".[").replace(".[", ".").split(".")
    ]


def _with(owner: Any, parts: list[str | int], value: Any, path: str) -> Any:
    if not parts:
        return value
    first, *rest = parts
    if isinstance(first, int):
        if not isinstance(owner, list) or not 0 <= first < len(owner):
            raise Refusal(
                f"sweep.parameters.{path}", f"The spec has no item {first} there.", "Name an item that is in the spec."
            )
        return [*owner[:first], _with(owner[first], rest, value, path), *owner[first + 1 :]]
    if owner is not None and not isinstance(owner, dict):
        raise Refusal(
            f"sweep.parameters.{path}", f"{first!r} would be a key of {owner!r}.", "Name a key of the job's spec."
        )
    known = owner or {}
    return {**known, first: _with(known.get(first), rest, value, path)}
