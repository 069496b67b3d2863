"""Of several ranks with numbers that are not finite, the one is named where they came from."""

from shardyard.workers.trainer.callbacks.nan_attribution import First, RankFindings, attribute


def test_a_forward_pass_is_blamed_on_its_first_stage() -> None:
    found = attribute(
        [
            RankFindings(0),
            RankFindings(0, module=First((0, 7), "blocks.1")),
            RankFindings(1, module=First((1, 2), "blocks.2"), gradient=First((-1, 0), "head.weight")),
            RankFindings(1),
        ]
    )
    assert (found.ranks, found.message) == ((1,), "first in the output of blocks.1 on rank 1")


def test_a_backward_pass_is_blamed_on_its_last_stage() -> None:
    found = attribute(
        [
            RankFindings(0, gradient=First((0, 3), "embed.weight")),
            RankFindings(1, ("norm.weight",)),
            RankFindings(1, gradient=First((-1, 9), "head.weight")),
        ]
    )
    assert (found.ranks, found.parameter) == ((2,), "head.weight")
    assert found.facts == {"rank": 2, "ranks": [2], "parameter": "head.weight"}


def test_of_a_stage_the_ranks_that_came_to_it_first_are_named() -> None:
    late, early = First((2, 5), "blocks.4"), First((2, 3), "blocks.3")
    found = attribute([RankFindings(0, module=late), *(RankFindings(0, module=early) for _ in range(2))])
    assert (found.ranks, found.message) == ((1, 2), "first in the output of blocks.3 on ranks 1, 2")


def test_what_appears_in_the_sum_alone_is_reported_as_such() -> None:
    found = attribute([RankFindings(0, ("a", "b")), RankFindings(0, ("a",))])
    assert (found.ranks, found.parameter) == ((0, 1), "a") and "once more" in found.message


def test_what_does_not_come_again_is_nobodys() -> None:
    found = attribute([RankFindings(0), RankFindings(0)])
    assert found.facts == {"ranks": [], "parameter": None} and "finite" in found.message
