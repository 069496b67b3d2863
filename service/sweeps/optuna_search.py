"""Asks Optuna for trials' parameters. In each step the study is made from the stored trials: no other storage, and no state to lose."""

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


class Study:
    """A sweep's study. A trial whose parameters were asked for is one that runs from then on."""

    def __init__(self, sweep: Sweep, seen: Sequence[Seen]) -> None:
        """Blocks for a second with a thousand trials; the first one imports Optuna."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._sweep = sweep
        self._distributions = {path: _distribution(parameter) for path, parameter in sweep.parameters.items()}
        self._study = optuna.create_study(direction=sweep.goal)
        for one in seen:
            self._study.add_trial(_frozen(one, sweep, self._distributions))

    def ask(self, number: int) -> Point:
        """The parameters of trial `number`, by TPE (Bergstra et al., 2011). Blocks for milliseconds, or seconds with long lists."""
        from optuna.samplers import TPESampler

        seed = (self._sweep.seed * 10_007 + number) % 2**32  # NumPy's bound
        # A sampler of its own: what a trial draws does not depend on which others are asked for in the same step.
        self._study.sampler = TPESampler(seed=seed, n_startup_trials=_AT_RANDOM, constant_liar=True, multivariate=True)
        given = self._study.ask(self._distributions).params
        return {path: _value(parameter, given[path]) for path, parameter in self._sweep.parameters.items()}


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
