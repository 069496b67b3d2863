"""`collectives` on this machine needs no control plane, and says what is wrong with its options."""

import json
from pathlib import Path

import pytest

from shardyard.api.cli.main import run
from shardyard.workers.collectives.report import COLLECTIVES

SPEC = """\
name: two
train:
  layout: { data: 2 }
  steps: 1
  global_batch: 2
"""


@pytest.mark.parametrize(
    ("sizes", "said"),
    [("1X", "'1X'"), ("2", "'2'"), ("1MiB,,", "''"), ("9GiB", "'9GiB'"), ("-4KiB", "'-4KiB'"), ("1.5MiB", "'1.5MiB'")],
)
def test_a_wrong_size_is_refused(sizes: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["collectives", f"--sizes={sizes}"]) == 1
    error = capsys.readouterr().err
    assert said in error and "--sizes" in error


def test_other_ranks_than_the_specs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.yaml").write_text(SPEC)
    assert run(["collectives", "--spec", str(tmp_path / "two.yaml"), "--ranks", "3"]) == 1
    assert "--ranks" in capsys.readouterr().err


@pytest.mark.full
def test_a_specs_groups_are_timed_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two.yaml").write_text(SPEC)
    assert run(["collectives", "--spec", str(tmp_path / "two.yaml"), "--sizes", "4KiB,64KiB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["world_size"], found["backend"], len(set(found["nodes"]))) == (2, "gloo", 1)
    assert {(one["axis"], one["collective"], one["bytes"]) for one in found["speeds"]} >= {
        ("world", name, size) for name in COLLECTIVES for size in (4096, 65_536)
    }
