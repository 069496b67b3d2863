"""Successive halving, decision by decision, and whole sweeps against the paper's algorithm."""

import random

import pytest

from shardyard.service.policies.asha import Action, Decision, Limits, Trial, decide

ASHA = Limits(parallel=2, reduction=3)


def stop(*numbers: int) -> list[Decision]:
    return [Decision(Action.STOP, number) for number in numbers]


def begin(*numbers: int) -> list[Decision]:
    return [Decision(Action.BEGIN, number) for number in numbers]


def waiting(*numbers: int) -> list[Trial]:
    return [Trial(number, "waiting") for number in numbers]


def test_without_rungs_trials_begin_as_there_is_room() -> None:
    trials = [Trial(0, "active"), *waiting(1, 2, 3)]
    assert decide(trials, Limits(parallel=3), ()) == begin(1, 2)
    assert decide([Trial(0, "done"), Trial(1, "over")], Limits(parallel=3), ()) == []


def test_the_first_at_a_rung_stops_because_a_third_of_one_is_none() -> None:
    trials = [Trial(0, "active", (1.0,)), Trial(1, "active"), *waiting(2)]
    assert decide(trials, ASHA, {0}) == [*stop(0), *begin(2)]


def test_the_best_of_three_goes_on_without_a_pause() -> None:
    trials = [Trial(0, "paused", (2.0,)), Trial(1, "paused", (3.0,)), Trial(2, "active", (1.0,)), *waiting(3)]
    assert decide(trials, ASHA, {2}) == begin(3)


def test_a_paused_trial_continues_before_a_new_one_begins_and_higher_rungs_first() -> None:
    low = [Trial(0, "paused", (1.0,)), Trial(1, "paused", (2.0,)), Trial(2, "active", (3.0,))]
    assert decide([*low, *waiting(3, 4)], ASHA, {2}) == [*stop(2), Decision(Action.CONTINUE, 0), *begin(3)]
    high = [Trial(number, "paused", (0.1 * number, 9.0 - number)) for number in range(5, 8)]
    # Of six at rung 0 two are the best, 0 being none of them; of three at rung 1 the best is 7.
    assert decide([*low[:2], Trial(2, "paused", (3.0,)), *high, *waiting(8)], Limits(1, 3), ()) == [
        Decision(Action.CONTINUE, 7)
    ]


def test_what_is_not_finite_is_never_among_the_best() -> None:
    trials = [Trial(0, "paused", (None,)), Trial(1, "paused", (None,)), Trial(2, "active", (None,)), *waiting(3)]
    assert decide(trials, ASHA, {2}) == [*stop(2), *begin(3)][:2]
    assert decide(trials[:3], ASHA, {2}) == [Decision(Action.GIVE_UP, number) for number in (0, 1, 2)]


def test_the_best_one_runs_to_its_end_without_pausing_and_the_others_are_given_up() -> None:
    trials = [Trial(0, "paused", (2.0,)), Trial(1, "active", (1.0,))]
    assert decide(trials, ASHA, {1}) == []
    assert decide([trials[0], Trial(1, "active", (1.0, 0.5))], ASHA, {1}) == []
    assert decide([trials[0], Trial(1, "done", (1.0, 0.5))], ASHA, ()) == [Decision(Action.GIVE_UP, 0)]
    assert decide([trials[0], Trial(1, "over", (1.0, 0.5))], ASHA, ()) == [Decision(Action.CONTINUE, 0)]


def test_where_a_stop_is_final_the_first_at_a_rung_goes_on() -> None:
    final = Limits(2, 3, final=True)
    assert decide([Trial(0, "active", (1.0,)), *waiting(1)], final, {0}) == begin(1)
    assert decide([Trial(0, "active", (1.0,)), Trial(1, "active", (2.0,)), *waiting(2)], final, {1}) == [
        *stop(1),
        *begin(2),
    ]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("final", [False, True])
def test_whole_sweeps_end_with_the_best_of_all_and_spend_a_fraction(seed: int, final: bool) -> None:
    """Trials of 27 steps with rungs at 1, 3 and 9, whose order is the same at every rung."""
    rng, rungs, parallel = random.Random(seed), [1, 3, 9], 4
    quality = rng.sample(range(1000), 27)
    steps, standing, values = [0] * 27, ["waiting"] * 27, [()] * 27
    for _ in range(27 * 27 + 100):
        active = [number for number in range(27) if standing[number] == "active"]
        assert len(active) <= parallel
        reached = set()
        for number in rng.sample(active, min(len(active), 2)):  # some are faster than others
            steps[number] += 1
            if steps[number] in rungs:
                values[number] = (*values[number], float(quality[number]))
                reached.add(number)
            if steps[number] == 27:
                standing[number] = "done"
        trials = [Trial(number, standing[number], values[number]) for number in range(27)]  # type: ignore[arg-type]
        for decision in decide(trials, Limits(parallel, 3, final), reached):
            become = {
                Action.BEGIN: "active",
                Action.CONTINUE: "active",
                Action.STOP: "over" if final else "paused",
                Action.GIVE_UP: "over",
            }
            assert standing[decision.number] == {Action.BEGIN: "waiting", Action.CONTINUE: "paused"}.get(
                decision.action, standing[decision.number]
            )
            standing[decision.number] = become[decision.action]
    assert set(standing) == {"done", "over"}
    finished = [number for number in range(27) if standing[number] == "done"]
    if not final:
        assert min(quality) in [quality[number] for number in finished]
    assert sum(steps) <= (0.6 if final else 0.45) * 27 * 27
