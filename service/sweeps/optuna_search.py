"""Asks Optuna for a trial's parameters. Each time the study is made from the stored trials: no other storage, and no state to lose."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..sweep_spec import Parameter, Sweep
from .points import Point


@dataclass(frozen=True)
class Seen:
    """A trial that has begun. `values`: the metric at each rung; `value`: the last one, or None; `ended`: it gets no other."""

    parameters: Point
    values: Sequence[float | None]
    value: float | None
    ended: bool

    @classmethod
    def of(cls, trial: Mapping[str, Any]) -> "Seen":
        """`trial`: a row of `trials`."""
        ended = trial["standing"] in ("paused", "done", "over")
        return cls(trial["parameters"], trial["rungs"], trial["value"], ended)


#: Trials that are drawn at random before the sampler learns.
_AT_RANDOM: Final = 10


def installed() -> bool:
    return importlib.util.find_spec("optuna") is not None


def ask(sweep: Sweep, seen: Sequence[Seen], number: int) -> Point:
    """The parameters of trial `number`, by TPE (Bergstra et al., 2011). Blocks for some milliseconds; the first call imports Optuna."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seed = (sweep.seed * 10_007 + number) % 2**32  # NumPy's bound
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_AT_RANDOM, constant_liar=True, multivariate=True)
    study = optuna.create_study(direction=sweep.goal, sampler=sampler)
    distributions = {path: _distribution(parameter) for path, parameter in sweep.parameters.items()}
    for one in seen:
        study.add_trial(_frozen(one, sweep, distributions))
    given = study.ask(distributions).params
    return {path: _value(sweep.parameters[path], given[path]) for path in sweep.parameters}


def _distribution(parameter: Parameter) -> Any:
    from optuna import distributions

    if parameter.values is not None:
        return distributions.CategoricalDistribution(range(len(parameter.values)))
    assert parameter.min is not None and parameter.max is not None
    log = parameter.scale == "log"
    if parameter.whole:
        return distributions.IntDistribution(int(parameter.min), int(parameter.max), log=log)
    return distributions.FloatDistribution(float(parameter.min), float(parameter.max), log=log)


def _frozen(one: Seen, sweep: Sweep, distributions: Any) -> Any:
    import optuna

    state = optuna.trial.TrialState
    finite = {rung: value for rung, value in enumerate(one.values) if value is not None}
    if not one.ended:
        became = state.RUNNING
    elif one.value is None:
        became = state.FAIL
    else:
        became = state.COMPLETE
    given = {path: _given(parameter, one.parameters[path]) for path, parameter in sweep.parameters.items()}
    return optuna.trial.create_trial(
        state=became,
        value=one.value if became == state.COMPLETE else None,
        params=given,
        distributions=distributions,
        intermediate_values=finite,
    )


def _given(parameter: Parameter, value: Any) -> Any:
    """The value as Optuna knows it: of a list its place, for values of any type."""
    return value if parameter.values is None else parameter.values.index(value)


def _value(parameter: Parameter, given: Any) -> Any:
    return given if parameter.values is None else parameter.values[int(given)]
