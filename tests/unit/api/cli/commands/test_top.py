"""`shardyard top` reads one page of running jobs, and says when there are more."""

import pytest
from harness.client_stand_in import ClientStandIn

from shardyard.api.cli.commands import top as command
from shardyard.api.cli.main import run
from shardyard.service.schemas.job import Job, Jobs
from shardyard.service.schemas.node import Node


class Service(ClientStandIn):
    """A client of a service that has this many running jobs, and none else."""

    count = 0

    def jobs(self, *, limit: int, state: str | None = None) -> Jobs:
        del state
        jobs = [
            Job.model_validate(
                {"id": f"job-{number}", "name": "tiny", "state": "running", "spec": {}, "created_at": 1.0}
            )
            for number in range(min(limit, self.count))
        ]
        return Jobs(items=jobs, next="job-0" if self.count > limit else None)

    def nodes(self) -> list[Node]:
        return []


@pytest.mark.parametrize(("count", "head"), [(3, "3 running ·"), (50, "50 running ·"), (51, "50+ running ·")])
def test_more_running_jobs_than_a_page_are_no_exact_number(
    count: int, head: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Service, "count", count)
    monkeypatch.setattr(command, "Client", Service)
    assert run(["top"]) == 0
    assert capsys.readouterr().out.startswith(head)
