"""`shardyard retry`, `delete` and `undelete`."""

import io
import json

import pytest

from shardyard.api.cli.main import run
from shardyard.api.client import ApiError, Client
from shardyard.api.client._sync.job import JobHandle

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
    assert run(["undelete", *url]) == 0
    assert f"{first.id}  first  deleted" in capsys.readouterr().out
    assert run(["undelete", "first", "absent", *url]) == 1
    shown = capsys.readouterr()
    assert "first  restored" in shown.out and "There is no job 'absent'" in shown.err
    assert first.refresh() == first


def test_a_pinned_job_is_named_and_the_others_are_deleted(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    kept, other, url = ended(client, "kept"), ended(client, "other"), ["--url", client.url]
    assert run(["edit", "kept", "--pin", *url]) == 0
    assert run(["show", "kept", *url]) == 0
    assert "pinned" in capsys.readouterr().out
    assert run(["delete", "kept", "other", "--yes", "--json", *url]) == 1
    shown = capsys.readouterr()
    assert [job["id"] for job in json.loads(shown.out)] == [other.id]
    assert f"shardyard edit {kept.id} --unpin" in shown.err
    assert run(["edit", "kept", "--unpin", *url]) == 0
    assert kept.delete().deleted_at is not None and kept.undelete() == kept
