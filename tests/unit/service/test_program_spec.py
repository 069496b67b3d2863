from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.service.program_spec import CommandLayout, has_credentials
from shardyard.service.spec import CommandSpec


def layout(**fields: Any) -> CommandLayout:
    return CommandLayout.model_validate(fields, strict=True)


def test_a_range_is_the_most_ranks_with_the_range_beside() -> None:
    spec = CommandSpec.model_validate(
        {"name": "a", "command": ["a"], "ranks": {"min": 2, "max": 8}, "ranks_per_node": 2}
    )
    assert (spec.world_size, str(spec.elastic), [*spec.sizes]) == (8, "2 to 8", [8, 6, 4, 2])
    stored = spec.model_dump(mode="json", by_alias=True)
    assert CommandSpec.model_validate(stored) == spec
    smaller = CommandSpec.model_validate(stored | {"ranks": 4})
    assert (smaller.world_size, [*smaller.sizes]) == (4, [8, 6, 4, 2])
    assert [*layout(ranks=3).sizes] == [3]


@pytest.mark.parametrize(
    ("fields", "where", "message"),
    [
        ({"ranks": {"min": 5, "max": 4}}, ("ranks", "max"), "max 4 is less than min 5"),
        ({"ranks": {"min": 0, "max": 4}}, ("ranks", "min"), "greater than or equal to 1"),
        ({"ranks": {"max": 4}}, ("ranks", "min"), "required"),
        ({"ranks": {"min": True, "max": 4}}, ("ranks", "min"), "valid integer"),
        ({"ranks": {"min": 1, "max": 4, "most": 4}}, ("ranks", "most"), "not permitted"),
        ({"ranks": 8, "elastic": {"min": 1, "max": 4}}, ("elastic",), "ranks 8 is not within 1 to 4"),
        ({"ranks": 3, "ranks_per_node": 2}, (), "ranks_per_node 2 does not divide ranks 3"),
        ({"ranks": {"min": 1, "max": 4}, "ranks_per_node": 2}, (), "ranks_per_node 2 does not divide ranks 1"),
        ({"ranks": {"min": 1, "max": 300}}, (), "1 to 300 are 300 numbers of ranks; a job may choose from 256."),
    ],
)
def test_wrong_ranks_are_refused_where_they_were_written(
    fields: dict[str, Any], where: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        layout(**fields)
    (error,) = refused.value.errors()
    assert error["loc"] == where and message in error["msg"]


def test_a_large_range_of_whole_nodes_is_allowed() -> None:
    assert len(layout(ranks={"min": 8, "max": 2048}, ranks_per_node=8).sizes) == 256


@pytest.mark.parametrize("scheme", ["https", "HTTPS", "git+HTTPS", "Http"])
def test_a_token_in_an_address_is_seen_however_its_scheme_is_written(scheme: str) -> None:
    assert has_credentials(f"{scheme}://ghp_token@github.com/a/b")
    assert not has_credentials(f"{scheme}://github.com/a/b")
