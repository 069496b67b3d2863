"""Optuna's sampler over stored trials."""

from shardyard.service.sweep_spec import Sweep
from shardyard.service.sweeps.optuna_search import Seen, Study, installed

SWEEP = Sweep.model_validate(
    {
        "parameters": {"a": {"min": 0.01, "max": 1.0, "scale": "log"}, "b": [True, "x", 3], "c": {"min": 1, "max": 9}},
        "search": "optuna",
    }
)


def seen(point: dict[str, object], value: float | None, *, ended: bool = True) -> Seen:
    return Seen(point, (value,), value, ended)


def test_values_are_of_the_parameters_and_the_same_each_time() -> None:
    assert installed()
    point = Study(SWEEP, []).ask(0)
    assert 0.01 <= point["a"] <= 1.0 and point["b"] in (True, "x", 3) and point["c"] in range(1, 10)
    assert Study(SWEEP, []).ask(0) == point != Study(SWEEP, []).ask(1)


def test_any_seed_that_a_sweep_may_have_draws_for_each_trial() -> None:
    sweep = SWEEP.model_copy(update={"seed": 2**31 - 1})
    assert len({Study(sweep, []).ask(number)["a"] for number in (0, 1, 999)}) == 3


def test_it_learns_from_ended_trials_and_knows_running_and_failed_ones() -> None:
    one = Sweep.model_validate({"parameters": {"a": {"min": 0.0, "max": 1.0}}, "search": "optuna"})
    known = [seen({"a": at / 30}, abs(at / 30 - 0.5)) for at in range(30)]
    known += [seen({"a": 0.9}, None), seen({"a": 0.4}, None, ended=False)]
    drawn = [Study(one, known).ask(number)["a"] for number in range(32, 52)]
    assert sum(abs(value - 0.5) for value in drawn) / 20 < 0.15  # 0.25 is that of even draws


def test_one_study_chooses_as_studies_that_are_made_for_each_trial() -> None:
    """A dispatcher may die between two trials: what the next one chooses does not depend on where a step began."""
    known = [
        seen({"a": 0.05 + at / 40, "b": [True, "x", 3][at % 3], "c": at % 9 + 1}, None if at == 4 else abs(at - 9.0))
        for at in range(20)
    ]
    study = Study(SWEEP, known)
    for number in range(20, 26):
        point = study.ask(number)
        assert point == Study(SWEEP, known).ask(number)
        known.append(Seen(point, (), None, ended=False))
