"""The table of strategies: every row once, with tests and examples that exist and spec lines that the checks accept."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardyard.strategies.cost.memory import state_bytes
from shardyard.workers.spec import TrainSpec

ROOT = Path(__file__).parents[2]
COLUMNS = ("row", "strategy", "paper", "spec", "memory", "traffic", "test", "example")
LINES = [line for line in (ROOT / "docs" / "strategies.md").read_text().splitlines() if line.startswith("| A")]
ROWS = [dict(zip(COLUMNS, (cell.strip() for cell in line.strip("|").split("|")), strict=True)) for line in LINES]
#: What a line of a spec begins with; other code in the column is a command or has a place to fill in.
OF_TRAIN = (*TrainSpec.model_fields, "model")


def spec_lines(row: dict[str, str]) -> dict[str, Any]:
    """The keys of `train` that the row names."""
    lines = [code for code in re.findall(r"`([^`]+)`", row["spec"]) if code.partition(":")[0] in OF_TRAIN]
    return {key: value for line in lines for key, value in yaml.safe_load(line).items() if "FOLDER" not in line}


SPECS = {row["row"]: found for row in ROWS if (found := spec_lines(row))}


def test_every_row_is_there_once() -> None:
    assert [row["row"] for row in ROWS] == [f"A{number}" for number in range(1, 37)]


@pytest.mark.parametrize("column", ["test", "example"])
def test_what_a_row_names_exists(column: str) -> None:
    named = [(row["row"], name) for row in ROWS for name in row[column].split(", ") if name]
    assert len(named) > 15
    assert [pair for pair in named if not (ROOT / pair[1]).is_file()] == []


def test_a_row_without_a_test_says_that_it_is_not_there() -> None:
    assert [row["row"] for row in ROWS if bool(row["test"]) == row["spec"].startswith("not yet")] == []


@pytest.mark.parametrize("row", SPECS)
def test_a_spec_line_is_accepted(row: str) -> None:
    given = {"steps": 1, "global_batch": 64, **SPECS[row]}
    train = TrainSpec.model_validate(given)
    if not train.undecided:
        train.check()


def test_most_rows_have_a_spec_line() -> None:
    assert len(SPECS) > 20


def written_bytes(formula: str, ranks: int) -> float:
    """A formula such as 2Ψ + 16Ψ/N, for one parameter; what follows a semicolon is beside the state."""
    terms = re.findall(r"(\d+)Ψ(/\w+)?", formula.partition(";")[0])
    return sum(int(factor) / (ranks if divided else 1) for factor, divided in terms)


@pytest.mark.parametrize("row", ["A1", "A4", "A5", "A6", "A7"])
def test_the_memory_of_zero_is_that_of_the_memory_plan(row: str) -> None:
    (memory,) = [one["memory"] for one in ROWS if one["row"] == row]
    assert written_bytes(memory, 4) == state_bytes(SPECS[row]["layout"].get("zero", 0), 1, 4)


def test_the_design_page_has_the_same_memory_of_zero() -> None:
    page = (ROOT / "docs" / "design" / "parallel-data.md").read_text()
    found = re.findall(r"^\| ZeRO-(\d)[^|]*\|[^|]*\|[^|]*\|([^|]*)\|$", page, re.MULTILINE)
    assert [stage for stage, _ in found] == ["0", "1", "2", "3"]
    assert [written_bytes(memory, 4) for _, memory in found] == [state_bytes(stage, 1, 4) for stage in range(4)]
