"""`shardyard retry`, `delete` and `undelete`."""

import io
import json

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import ApiError, Client
from shardyard.api.client._sync.job import JobHandle
from shardyard.api.client.transport import Unreachable

from ...conftest import SPEC


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ended(client: Client, name: str = "tiny") -> JobHandle:
    return client.submit({**SPEC, "name": name}).cancel()


def test_a_retry_is_a_new_job_that_names_the_old_one(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    job, url = ended(client), ["--url", client.url]
    assert run(["retry", "tiny", "--key", "k", "--json", *url]) == 0
    new = json.loads(capsys.readouterr().out)
    assert (new["retry_of"], new["state"]) == (job.id, "queued")
    assert run(["retry", "tiny", "--key", "k", *url]) == 0
    assert new["id"] in capsys.readouterr().out
    assert run(["show", job.id, *url]) == 0
    assert f"retried by  {new['id']}" in capsys.readouterr().out
    assert run(["retry", new["id"], *url]) == 1
    assert "is queued" in capsys.readouterr().err


def test_jobs_are_deleted_after_a_yes_and_restored(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, url = ended(client, "first"), ended(client, "second"), ["--url", client.url]
    for stdin, says in ((io.StringIO("y\n"), "Give --yes"), (Terminal("n\n"), "Delete these 2 jobs?")):
        monkeypatch.setattr("sys.stdin", stdin)
        assert run(["delete", "first", second.id, *url]) != 0
        assert says in capsys.readouterr().err
    assert {job.id for job in client.jobs().items} == {first.id, second.id}
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert run(["delete", "first", first.id, *url]) == 0
    shown = capsys.readouterr()
    assert f"{first.id}  first  deleted" in shown.out and f"shardyard undelete {first.id}" in shown.err
    with pytest.raises(ApiError, match="was deleted") as refused:
        first.refresh()
    assert (refused.value.code, refused.value.status) == ("job_deleted", 410)
    assert run(["show", first.id, *url]) == 1
    assert f"shardyard undelete {first.id}" in capsys.readouterr().err
    for listing in (["undelete"], ["list", "--deleted"]):
        assert run([*listing, *url]) == 0
        shown = capsys.readouterr()
        assert [line.split()[:3] for line in shown.out.splitlines()[1:]] == [[first.id, "first", "cancelled"]]
        assert "shardyard undelete JOB" in shown.err
    assert run(["list", "--deleted", "--json", *url]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["items"]
    assert (listed["id"], bool(listed["deleted_at"]), bool(listed["deleted_by"])) == (first.id, True, True)
    assert run(["undelete", "first", "absent", *url]) == 1
    shown = capsys.readouterr()
    assert "first  restored" in shown.out and "'absent' is not the id of a job." in shown.err
    assert first.refresh() == first
    assert run(["list", "--deleted", *url]) == 0
    assert "No deleted job can be restored." in capsys.readouterr().err


def test_more_deleted_jobs_than_a_page_are_named(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer, url = ended(client, "older").delete(), ended(client, "newer").delete(), ["--url", client.url]
    monkeypatch.setattr("shardyard.api.cli.commands.life._LISTED", 1)
    assert run(["undelete", *url]) == 0
    shown = capsys.readouterr()
    assert newer.id in shown.out and older.id not in shown.out
    assert f"shardyard list --deleted --cursor {newer.id}" in shown.err
    assert run(["undelete", "--json", *url]) == 0
    assert [job["id"] for job in json.loads(capsys.readouterr().out)] == [newer.id, older.id]
    assert run(["list", "--deleted", "--text", "er", "--limit", "1", *url]) == 0
    assert f"shardyard list --text=er --limit=1 --deleted --cursor {newer.id}" in capsys.readouterr().err


def test_a_name_restores_its_newest_job_alone(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    older, newer = (ended(client, "same").delete() for _ in range(2))
    assert run(["undelete", "same", "same", "--url", client.url]) == 0
    assert capsys.readouterr().out.split() == [newer.id, "same", "restored"]
    assert [job.id for job in client.jobs(deleted=True).items] == [older.id]


def test_a_pinned_job_is_named_and_the_others_are_deleted(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    kept, other, url = ended(client, "kept"), ended(client, "other"), ["--url", client.url]
    assert run(["edit", "kept", "--pin", *url]) == 0
    assert run(["show", "kept", *url]) == 0
    assert "pinned" in capsys.readouterr().out
    assert run(["delete", "kept", "other", "--yes", "--json", *url]) == 1
    shown = capsys.readouterr()
    assert [job["id"] for job in json.loads(shown.out)] == [other.id]
    said = json.loads(shown.err)
    assert said["code"] == "job_pinned" and f"shardyard edit {kept.id} --unpin" in said["errors"][0]["remedy"]
    assert run(["delete", "kept", "--yes", *url]) == 1
    assert "(job_pinned)" in (printed := capsys.readouterr().err) and f"shardyard edit {kept.id} --unpin" in printed
    assert run(["edit", "kept", "--unpin", *url]) == 0
    assert kept.delete().deleted_at is not None and kept.undelete() == kept


def test_what_was_done_before_the_control_plane_went_away_is_printed(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, url = ended(client, "first"), ended(client, "second"), ["--url", client.url]

    class Lost(Client):
        """Its control plane goes away after one change."""

        def delete(self, job: str) -> JobHandle:
            return super().delete(self._reached(job))

        def undelete(self, job: str) -> JobHandle:
            return super().undelete(self._reached(job))

        def _reached(self, job: str) -> str:
            if job != first.id:
                raise Unreachable(client.url, "refused")
            return job

    monkeypatch.setattr("shardyard.api.cli.commands.life.Client", Lost)
    assert run(["delete", "first", "second", "--yes", *url]) == 1
    printed = capsys.readouterr()
    assert printed.out == f"{first.id}  first  deleted\n"
    assert f"shardyard undelete {first.id}" in printed.err and "No control plane answers" in printed.err
    second.delete()
    assert run(["undelete", first.id, second.id, "--json", *url]) == 1
    printed = capsys.readouterr()
    assert [job["id"] for job in json.loads(printed.out)] == [first.id]
    assert json.loads(printed.err)["code"] == "unreachable"
