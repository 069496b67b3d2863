"""`shardyard metrics`: the list of what a program logged, against a served API."""

import pytest
from harness.events import logged

from shardyard.api.cli.main import run
from shardyard.api.client import Client

from ...conftest import Gang, Plane

pytestmark = pytest.mark.usefixtures("asks_the_plane")


def test_the_list_says_of_how_many_steps_a_kept_value_is(
    plane: Plane, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """A metric of more steps than a curve has buckets is thinned."""
    job = client.submit({"name": "long", "command": ["python", "train.py"]}).id
    gang = Gang(plane, job)
    gang.state("starting")
    gang.state("running")
    gang.emit(logged({"acc": [(0, 0.5), (9_999, 0.9)], "few": [(3, 2.0)]}))
    assert run(["metrics", job]) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    assert [[part.strip() for part in row.split("  ") if part.strip()] for row in rows] == [
        ["acc", "0.9", "9,999", "mean and extremes of 4 steps"],
        ["few", "2", "3", "every step"],
    ]
