"""The values of each trial's parameters, for the searches that do not learn: all are known when the sweep is submitted."""

import itertools
import random
from typing import Any

from ..sweep_spec import Sweep

Point = dict[str, Any]


def points(sweep: Sweep) -> list[Point] | None:
    """The values of all trials, by the path of the parameter; None for a search that decides trial by trial.

    `sobol`: Owen-scrambled (torch.quasirandom.SobolEngine), so that any first part of the sequence covers the space evenly.
    """
    match sweep.search:
        case "grid":
            return _grid(sweep)
        case "random":
            return [
                _point(sweep, _random(sweep.seed, number, len(sweep.parameters)))
                for number in range(sweep.number_of_trials)
            ]
        case "sobol":
            return [_point(sweep, place) for place in _sobol(sweep)]
        case "optuna":
            return None


def _grid(sweep: Sweep) -> list[Point]:
    values = [parameter.grid() for parameter in sweep.parameters.values()]
    combinations = itertools.islice(itertools.product(*values), sweep.number_of_trials)
    return [dict(zip(sweep.parameters, one, strict=True)) for one in combinations]


def _random(seed: int, number: int, dimensions: int) -> list[float]:
    draw = random.Random(f"{seed}/{number}")
    return [draw.random() for _ in range(dimensions)]


def _sobol(sweep: Sweep) -> list[list[float]]:
    import torch  # a second, which only this search takes
    from torch.quasirandom import SobolEngine

    engine = SobolEngine(len(sweep.parameters), scramble=True, seed=sweep.seed)
    return [[float(part) for part in one] for one in engine.draw(sweep.number_of_trials, dtype=torch.float64)]


def _point(sweep: Sweep, place: list[float]) -> Point:
    return {
        path: parameter.at(min(where, 1 - 2**-40))
        for (path, parameter), where in zip(sweep.parameters.items(), place, strict=True)
    }
