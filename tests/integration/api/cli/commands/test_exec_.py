"""`shardyard exec` against a served API and a gang that runs what was asked for."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.cli.commands import exec_
from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.api.client._sync.job import JobHandle

from ...conftest import SPEC, Plane, running_job, until


@contextmanager
def running(plane: Plane, *reported: dict[str, Any]) -> Iterator[None]:
    """While the block runs, commands of a running job end like these, in order; each prints two lines, and the rank itself one."""
    with Client(plane.url) as client:
        job, gang = running_job(plane, client)

        def more_than(number: int) -> bool:
            return len(client.execs(job).items) > number

        def report() -> None:
            for number, how in enumerate(reported):
                until(partial(more_than, number))
                asked = client.execs(job).items[0]
                lines = {"rank": asked.rank, "first": 10 * number + 1}
                gang.emit(
                    ("log", {**lines, "stream": "stdout", "lines": ["of the rank"]}),
                    ("log", {**lines, "first": 10 * number + 2, "stream": "exec", "lines": asked.command}),
                    (
                        "log",
                        {**lines, "first": 10 * number + 9, "stream": "gate", "lines": ["local opened a terminal"]},
                    ),
                    ("exec", {"id": asked.id, "rank": asked.rank, **how}),
                )

        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        yield
        thread.join(PATIENCE_S)


def test_its_output_and_status_are_the_commands_own(allowed: Plane, capsys: pytest.CaptureFixture[str]) -> None:
    # 2 is what a wrong command line would be for click.
    with running(allowed, {"status": 2, "message": "exit status 2"}, {"status": None, "message": "too late"}):
        assert run(["exec", "tiny", "--rank", "1", "--", "ls", "--all"]) == 2
        printed = capsys.readouterr()
        assert printed.out == "ls\n--all\n" and "--help" not in printed.err
        assert run(["exec", "tiny", "--seconds", "1", "--", "sleep"]) == 1
        printed = capsys.readouterr()
        assert printed.out == "sleep\n" and "did not run to its end: too late." in printed.err
        assert run(["exec", "tiny", "--rank", "5", "--", "ls"]) == 1
        assert "Name one from 0 to 1." in capsys.readouterr().err


class Overtaken(Client):
    """A client of a service that gets a newer job of the name as soon as a job was looked up by it."""

    def job(self, job: str) -> JobHandle:
        found = super().job(job)
        if found.id != job:
            self.submit({**SPEC, "name": job})
        return found


def test_it_runs_beside_the_job_that_was_looked_up(
    allowed: Plane, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exec_, "Client", Overtaken)
    with running(allowed, {"status": 0, "message": "exit status 0"}):
        assert run(["exec", "tiny", "--", "ls"]) == 0
    assert capsys.readouterr().out == "ls\n"
