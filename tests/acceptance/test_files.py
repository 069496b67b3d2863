"""Programs with files from buckets, from the Hub and from shared paths, as users see them."""

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.bucket import Buckets
from harness.control_plane import ControlPlane, until
from harness.hub import Hub, Repository, running_hub
from harness.patience import PATIENCE_S
from harness.programs import lines, submitted

from shardyard.workers.storage.open_folder import folder_at

EXAMPLES = Path(__file__).parents[2] / "examples"
OLD, NEW = "a" * 40, "b" * 40
#: Prints what it finds, and its modes.
SCRIPT = """
import os, pathlib, stat
root = pathlib.Path(os.environ["SHARDYARD_FILES"])
for path in sorted(pathlib.Path(folder, name) for folder, _, names in os.walk(root, followlinks=True) for name in names):
    print("found", path.relative_to(root), path.read_text(), oct(stat.S_IMODE(path.stat().st_mode)), flush=True)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as found:
        files = {"a.txt": b"old"}
        found.repositories["org/model"] = Repository({OLD: files, NEW: {"a.txt": b"new"}}, {"main": OLD})
        yield found


@pytest.mark.full
def test_a_program_finds_its_files(plane: ControlPlane, buckets: Buckets, prefix: str, tmp_path: Path) -> None:
    """From a bucket, with the nodes' credentials, and from a path that all nodes see. A source that is not there fails the job at once."""
    shared = tmp_path / "shared.txt"
    shared.write_text("mine")
    folder_at(f"{prefix}/in").write("b.txt", memoryview(b"stored"))
    sources = {"data": prefix, "notes.txt": str(shared)}
    with plane.client() as client:
        job = client.wait(submitted(client, tmp_path, SCRIPT, ranks=2, files=sources).id, timeout_s=PATIENCE_S)
        assert (job.state, client.incidents(job.id).items) == ("succeeded", []), job.message
        found = [line for line in lines(client, job.id) if line.startswith("found")]
        assert sorted(found)[:2] == ["found data/in/b.txt stored 0o444"] * 2
        assert len([line for line in found if line.startswith("found notes.txt mine")]) == 2
        known = {one.target: (one.source, one.files, one.bytes) for one in client.job(job.id).files}
        assert known == {"data": (prefix, 1, 6), "notes.txt": (str(shared), None, None)}
        assert f"{prefix} · 1 file · 6 B · digest" in " ".join(plane.run("show", job.id).stdout.split())
        more = {"files": {"data": f"{prefix}/lost"}, "policy": {"max_retries": 3}}
        failed = client.wait(submitted(client, tmp_path, SCRIPT, ranks=1, **more).id, timeout_s=PATIENCE_S)
        assert (failed.reason, failed.attempt) == ("files_not_fetched", 1)
        (incident,) = client.incidents(failed.id).items
        assert f"{prefix}/lost: there is no such file, and no file below it; correct" in (incident.message or "")


@pytest.mark.full
def test_the_example_runs_as_it_stands(plane: ControlPlane) -> None:
    with plane.client() as client:
        done = client.wait(client.submit(EXAMPLES / "files.yaml").id, timeout_s=PATIENCE_S)
        assert done.state == "succeeded" and any("scripts/ddp.py" in line for line in lines(client, done.id))


@pytest.mark.full
def test_a_later_attempt_has_the_commit_of_the_first(plane: ControlPlane, hub: Hub, tmp_path: Path) -> None:
    """The program has code, and its first attempt fails after the branch has moved. A new job sees the new commit."""
    code, go = tmp_path / "code", tmp_path / "go"
    code.mkdir()
    script = f"import os, pathlib, time\nprint('has', open('model/a.txt').read(), flush=True)\ngo = pathlib.Path({str(go)!r})\n"
    script += "while not go.exists(): time.sleep(0.1)\nif os.environ['SHARDYARD_ATTEMPT'] == '1': raise SystemExit(3)\n"
    (code / "train.py").write_text(script)
    spec = {
        "name": "pinned",
        "command": ["python", "train.py"],
        "code": {"dir": str(code)},
        "policy": {"max_retries": 1},
    }
    spec |= {
        "files": {"model": "hf://org/model"},
        "resources": {"env": {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}},
    }
    with plane.client() as client:
        job = client.submit(spec)
        until(lambda: "has old" in lines(client, job.id), PATIENCE_S, "the first attempt")
        hub.repositories["org/model"].refs["main"] = NEW
        go.touch()
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert (done.state, done.attempt) == ("succeeded", 2), done.message
        assert [line for line in lines(client, job.id) if line.startswith("has")] == ["has old"] * 2
        assert [one.revision for one in client.job(job.id).files] == [OLD]
        spec |= {"name": f"new-{uuid.uuid4().hex[:4]}", "policy": {"max_retries": 1}}
        again = client.wait(client.submit(spec).id, timeout_s=PATIENCE_S)
        assert again.state == "succeeded" and "has new" in lines(client, again.id)
        assert hub.asked["resolve a.txt"] == 2


@pytest.mark.full
def test_a_cancelled_fetch_ends_at_once_and_a_long_one_is_no_hang(
    plane: ControlPlane, hub: Hub, tmp_path: Path
) -> None:
    hub.gates["a.txt"] = threading.Event()
    more = {"resources": {"env": {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}}, "policy": {"hang_timeout_s": 1}}
    files = {"model": f"hf://org/model@{NEW}"}
    with plane.client() as client:
        job = submitted(client, tmp_path, SCRIPT, ranks=1, files=files, **more)
        assert hub.held.wait(PATIENCE_S)
        client.cancel(job.id)
        assert client.wait(job.id, timeout_s=PATIENCE_S).state == "cancelled"
        job = submitted(client, tmp_path, SCRIPT, ranks=1, files=files, **more)
        until(lambda: hub.asked["resolve a.txt"] >= 2, PATIENCE_S, "the next fetch")
        hub.gates.pop("a.txt").set()
        done = client.wait(job.id, timeout_s=PATIENCE_S)
        assert (done.state, client.incidents(job.id).items) == ("succeeded", [])
