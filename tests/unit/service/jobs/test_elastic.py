from typing import Any

import pytest

from shardyard.service.jobs import elastic
from shardyard.service.spec import CommandSpec


def row(world_size: int, impatient: bool = False, sizes: tuple[int, ...] = (8, 4, 2), grace_s: float = 60.0) -> Any:
    elastic = [{"world_size": size} for size in sizes] or None
    policy = {"elastic_grace_s": grace_s}
    return {"world_size": world_size, "elastic": elastic, "impatient": impatient, "spec": {"policy": policy}}


@pytest.mark.parametrize(
    ("job", "sizes"),
    [
        (row(8), [8]),
        (row(4), [8, 4]),
        (row(4, impatient=True), [8, 4, 2]),
        (row(3, impatient=True, sizes=()), [3]),
    ],
    ids=["patient", "as it was or larger", "impatient", "not elastic"],
)
def test_a_queued_job_prefers_its_largest_form(job: Any, sizes: list[int]) -> None:
    assert elastic.sizes(job) == sizes


def test_only_a_job_with_a_smaller_form_gives_way() -> None:
    assert elastic.may_shrink(row(4)) and not elastic.may_shrink(row(2)) and not elastic.may_shrink(row(2, sizes=()))
    assert (elastic.larger(row(2)), elastic.larger(row(8)), elastic.larger(row(8, sizes=()))) == ([8, 4], [], [])


def test_a_gang_that_lost_devices_has_waited_already() -> None:
    assert elastic.patience_s(row(4), lost=False) == 60.0
    assert elastic.patience_s(row(4), lost=True) == elastic.FREED_S
    assert elastic.patience_s(row(4, grace_s=0.5), lost=True) == 0.5


def test_specs_that_differ_in_an_elastic_degree_alone_are_the_same() -> None:
    def spec(data: int, elastic: Any) -> dict[str, Any]:
        return {"train": {"layout": {"data": data, "elastic": elastic}}}

    within = {"min": 1, "max": 4}
    assert elastic.same(spec(4, within), spec(2, within))
    assert not elastic.same(spec(4, within), spec(4, {"min": 2, "max": 4}))
    assert not elastic.same(spec(4, None), spec(2, None))
    assert not elastic.same(spec(2, within), spec(2, None))


def test_specs_are_the_same_whether_the_advisor_chose_their_layout_or_not() -> None:
    def spec(data: int, **layout: Any) -> dict[str, Any]:
        return {"train": {"layout": {"data": data, **layout}}}

    assert elastic.same(spec(2), spec(2, auto={"step_s": 1.0}))
    assert not elastic.same(spec(2), spec(4, auto={"step_s": 1.0}))


def command(**fields: Any) -> CommandSpec:
    return CommandSpec.model_validate({"name": "mine", "command": ["a"], **fields})


def test_the_forms_of_a_command_are_its_numbers_of_ranks() -> None:
    columns = elastic.columns_of_command(command(ranks={"min": 2, "max": 6}, ranks_per_node=2))
    assert [(one["world_size"], one["layout"]) for one in columns["elastic"]] == [
        (6, "6 ranks"),
        (4, "4 ranks"),
        (2, "2 ranks"),
    ]
    assert (columns["world_size"], columns["layout"], columns["tensor"]) == (6, "6 ranks", 2)
    assert columns["shape"] == elastic.columns_of_command(command(ranks=2, ranks_per_node=2))["shape"]
    fixed = elastic.columns_of_command(command())
    assert (fixed["elastic"], fixed["layout"]) == (None, "1 rank")
    assert elastic.columns_of_command(command(ranks={"min": 4, "max": 4}))["elastic"] is None


def test_commands_that_differ_in_elastic_ranks_alone_are_the_same() -> None:
    def spec(ranks: int, elastic: Any) -> dict[str, Any]:
        return {"command": ["a"], "ranks": ranks, "elastic": elastic}

    within = {"min": 1, "max": 4}
    assert elastic.same(spec(4, within), spec(2, within))
    assert not elastic.same(spec(4, within), spec(4, {"min": 2, "max": 4}))
    assert not elastic.same(spec(4, None), spec(2, None))
