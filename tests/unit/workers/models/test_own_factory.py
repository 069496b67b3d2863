"""A factory of the user's own is imported from its folder, and what it lacks is refused with the spec's field."""

from pathlib import Path

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.models.own_factory import made
from shardyard.workers.models.own_module import SOURCE, OwnSource


def test_returns_what_the_factory_makes_of_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "own_factory_good.py").write_text("def make(width, depth=2): return width * depth\n")
    assert made(OwnSource("own_factory_good:make", str(tmp_path), {"width": 21}), SOURCE) == 42


@pytest.mark.parametrize(
    ("name", "args", "field"),
    [
        ("own_factory_absent:make", {}, "data.source"),
        ("own_factory_bad:other", {}, "data.source"),
        ("own_factory_bad:make", {"widht": 1}, "data.options.widht"),
        ("own_factory_bad:make", {}, "data.options"),
    ],
)
def test_what_it_lacks_is_refused(name: str, args: dict[str, int], field: str, tmp_path: Path) -> None:
    (tmp_path / "own_factory_bad.py").write_text("def make(width): return width\n")
    with pytest.raises(Refusal) as refused:
        made(OwnSource(name, str(tmp_path), args), SOURCE)
    assert refused.value.field == field
