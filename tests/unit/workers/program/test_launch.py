"""Programs of the user's own, on two ranks: what they find in their environment, and what is known of them."""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness import packages
from harness.patience import PATIENCE_S
from harness.ranks import spawn

from shardyard.workers.checkpoint.program_files import read_program
from shardyard.workers.checkpoint.retention import folder
from shardyard.workers.messages.artifact import Artifact
from shardyard.workers.messages.other_version import OrdersUnreadable
from shardyard.workers.messages.rendezvous import RankAssignment
from shardyard.workers.messages.stop_request import StopRequest
from shardyard.workers.parent_death import adopt_orphans
from shardyard.workers.program import artifact_uploads, launch
from shardyard.workers.program.artifact_uploads import ArtifactUploads, LoggedFile
from shardyard.workers.program.launch import run_program
from shardyard.workers.program.preparation import ProgramFailed, Start, wait_for_all
from shardyard.workers.program.program import ArtifactStorage, Program, PythonEnvironment, argv
from shardyard.workers.program.shared_folder import EndRequested
from shardyard.workers.storage.open_folder import folder_at
from shardyard.workers.supervisor.repair import ROOT_CAUSE_S
from shardyard.workers.trainer.instruments import Instruments

#: The usual script for torchrun, without a word about Shardyard.
DDP = """
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 2, dtype=torch.float64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
for _ in range(3):
    optimizer.zero_grad()
    model(data[dist.get_rank()::dist.get_world_size()]).square().mean().backward()
    optimizer.step()
torch.save(model.module.state_dict(), f"{sys.argv[1]}/{dist.get_rank()}.pt")
dist.destroy_process_group()
"""


def run(
    script: str,
    root: Path,
    world: int = 2,
    stop_when: Sequence[str] = (),
    launcher: tuple[str, ...] = (),
    nodes: Sequence[int] = (),
) -> list[dict[str, Any]]:
    """Per rank the events, and how the program failed. `stop_when`: names of files; when all exist, the ranks are asked to
    stop. Once a rank's status says that it waits in its second collective, or is in `forgets`, its file `stuck-RANK` exists.

    `launcher`: modules and options of Python that start the script once for all ranks of a node. `nodes`: that of each rank.
    """
    path = root / "script.py"
    path.write_text(script)
    command = [sys.executable, *launcher, str(path), str(root)]
    program = Program(
        "a-job",
        argv(command),
        cwd=str(root),
        per_node=bool(launcher),
        checkpoints=str(root / "storage"),
        cache=str(root / "cache"),
    )
    found: list[dict[str, Any]] = spawn(
        _rank, world, program.to_json(), [str(root / name) for name in stop_when], None, nodes
    )
    return found


def _rank(
    rank: int,
    world: int,
    port: int,
    program: dict[str, Any],
    stop_when: list[str],
    env: Mapping[str, str] | None = None,
    nodes: Sequence[int] = (),
) -> dict[str, Any]:
    import torch.distributed as dist

    nodes = nodes or [0] * world

    os.environ.update(env or {})  # the process was forked before a test has set some
    os.setsid()  # the program's group is that of its trainer
    adopt_orphans()
    store = dist.TCPStore("127.0.0.1", port, None, is_master=False)
    listener = socket.socket()
    if rank == 0:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        store.set("port", str(listener.getsockname()[1]))
    coords = RankAssignment(
        rank=rank,
        world_size=world,
        local_rank=nodes[:rank].count(nodes[rank]),
        local_world_size=nodes.count(nodes[rank]),
        node_rank=nodes[rank],
        nodes=len(set(nodes)),
        master_host="127.0.0.1",
        master_port=int(store.get("port")),
        master_fd=listener.detach() if rank == 0 else None,
        generation=3,
    )
    events: list[Any] = []
    statuses: list[Any] = []
    instruments = Instruments(
        stop_request=lambda: (
            StopRequest.STOP if stop_when and all(Path(file).exists() for file in stop_when) else StopRequest.NO
        ),
    )
    threading.Thread(
        target=_examine, args=(instruments, statuses, Path(program["cwd"], f"stuck-{rank}")), daemon=True
    ).start()
    failed = kept = None
    try:
        kept = run_program(program, coords, lambda kind, data: events.append((kind, data)), instruments)
    except ProgramFailed as error:
        failed = error.failed
    result = {"kinds": [kind for kind, _ in events], "failed": failed, "status": statuses[-1] if statuses else None}
    result["restarts"] = [data.get("restarts", 0) for kind, data in events if kind == "metrics"]
    store.set(f"done/{rank}", "")
    store.wait([f"done/{other}" for other in range(world)])
    del kept  # rank 0's store, which the other's program may use until then
    return result


def _examine(instruments: Instruments, statuses: list[Any], stuck: Path) -> None:
    while True:
        time.sleep(0.2)
        if _is_stuck(status := instruments.heartbeat.status()):
            statuses.append(status)
            stuck.touch()


def _is_stuck(status: dict[str, Any]) -> bool:
    """Not in the first collective, which ends, nor where the second has failed because the other rank has ended."""
    collectives = status.get("collectives") or []
    waits = [record["seq"] for record in collectives if "op" in record]
    at = {(): "forgets", (2,): "in all_reduce"}.get(tuple(waits))
    frames = [frame for stack in status.get("stacks", ()) for frame in stack["frames"]]
    return bool(collectives) and at is not None and any(at in frame for frame in frames)


#: Files that say that both ranks are stuck.
STUCK = ("stuck-0", "stuck-1")


def test_a_script_for_torchrun_equals_one_process(tmp_path: Path) -> None:
    import torch

    found = run(DDP, tmp_path)
    assert [one["kinds"] for one in found] == [["program_started"]] * 2 and not any(one["failed"] for one in found)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2, dtype=torch.float64)
    data = torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        loss = model(data).square().mean()
        for parameter, gradient in zip(
            model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            parameter.data -= 0.1 * gradient
    for rank in range(2):
        for name, value in torch.load(tmp_path / f"{rank}.pt").items():
            torch.testing.assert_close(value, model.state_dict()[name], rtol=0, atol=1e-12)


def test_a_program_has_the_environment_of_torchrun(tmp_path: Path) -> None:
    script = "import json, os, sys; json.dump(dict(os.environ), open(f'{sys.argv[1]}/' + os.environ['RANK'], 'w'))"
    run(script, tmp_path)
    first, second = (json.loads((tmp_path / rank).read_text()) for rank in "01")
    wanted = {
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
    }
    wanted |= {
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RUN_ID": "a-job-1",
    }
    assert {name: second[name] for name in wanted} == wanted
    assert first["MASTER_PORT"] == second["MASTER_PORT"] and (first["RANK"], second["RANK"]) == ("0", "1")
    servers = {rank["MLFLOW_TRACKING_URI"] for rank in (first, second)}
    assert len(servers) == 2 and all(server.startswith("http://127.0.0.1:") for server in servers)


def test_an_exception_is_known_with_its_traceback(tmp_path: Path) -> None:
    first, second = run("import os\nif os.environ['RANK'] == '1':\n    raise ValueError('this is wrong')\n", tmp_path)
    assert first["failed"] is None
    assert (second["failed"].type, second["failed"].message) == ("ValueError", "this is wrong")
    assert 'script.py", line 3' in second["failed"].traceback and "sitecustomize" not in second["failed"].traceback


def test_a_status_without_an_exception_is_named_by_its_number(tmp_path: Path) -> None:
    (only,) = run("import sys; sys.exit(3)", tmp_path, world=1)
    assert only["failed"].message == "the program exited with status 3"


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    (only,) = spawn(_rank, 1, Program("a-job", ("pyhton", "train.py"), cwd=str(tmp_path)).to_json(), [])
    assert "'pyhton' on this node: No such file" in only["failed"].message
    (only,) = spawn(_rank, 1, Program("a-job", ("python",), cwd=str(tmp_path / "none")).to_json(), [])
    assert "is no folder on this node" in only["failed"].message


def test_a_program_runs_in_its_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has neither torch nor this package's dependencies; its exceptions are known all the same, and what it logs."""
    packages.wheel(tmp_path / "index", "alpha")
    for name, value in packages.variables(tmp_path / "index").items():
        monkeypatch.setenv(name, value)
    script = """
import os, sys, alpha, shardyard
assert sys.prefix == os.environ["VIRTUAL_ENV"] and os.environ["PATH"].startswith(sys.prefix + "/bin:"), sys.prefix
shardyard.log({"x": 1.0}, step=0)
import torch
"""
    program = Program(
        "a-job",
        ("python", "-c", script),
        cwd=str(tmp_path),
        python=PythonEnvironment(requirements=("alpha",)),
        cache=str(tmp_path / "cache"),
    )
    (only,) = spawn(_rank, 1, program.to_json(), [], dict(os.environ))
    assert only["kinds"] == ["program_started", "metrics"]
    assert (only["failed"].type, only["failed"].message) == ("ModuleNotFoundError", "No module named 'torch'")
    missing = replace(program, python=PythonEnvironment("none.txt"))
    (only,) = spawn(_rank, 1, missing.to_json(), [], dict(os.environ))
    assert (only["kinds"], only["failed"].type) == ([], "EnvironmentNotBuilt")
    assert only["failed"].facts.cause == "environment_not_built" and "none.txt does not exist" in only["failed"].message


def test_a_program_of_another_version_is_no_failure_of_the_program() -> None:
    with pytest.raises(OrdersUnreadable, match="colour") as caught:
        run_program({"job": "a-job", "argv": ["true"], "colour": "blue"}, None, None, Instruments())
    assert caught.value.facts.cause == "other_version"


def test_no_program_starts_before_all_environments_are_there() -> None:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    looks = iter([False, False, True])
    with pytest.raises(EndRequested):
        wait_for_all(store, 2, lambda: next(looks), PATIENCE_S)
    wait_for_all(store, 2, lambda: pytest.fail("it waits, and all are there"), PATIENCE_S)


def test_a_hanging_program_says_which_collective_it_waits_in(tmp_path: Path) -> None:
    script = """
import os, signal, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
def forgets():
    time.sleep(600)
if dist.get_rank() == 1:
    forgets()
dist.broadcast(torch.ones(3), 0) if dist.get_rank() == 1 else dist.all_reduce(torch.ones(3))
"""
    first, second = (one["status"] for one in run(script, tmp_path, stop_when=STUCK))
    (waiting,) = first["collectives"]
    assert (waiting["group"], waiting["op"], waiting["seq"], waiting["ranks"]) == ("world", "all_reduce", 2, [0, 1])
    assert second["collectives"][0]["entered"] == 1 and "op" not in second["collectives"][0]
    assert first["phase"] == "program" and first["idle_s"] < PATIENCE_S
    assert any("in all_reduce" in frame for frame in first["stacks"][0]["frames"])


def test_a_program_that_is_to_stop_gets_sigterm(tmp_path: Path) -> None:
    script = """
import pathlib, signal, sys, time
root = pathlib.Path(sys.argv[1])
def save(*_):
    (root / "saved").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
(root / "ready").touch()
time.sleep(600)
"""
    (only,) = run(script, tmp_path, world=1, stop_when=["ready"])
    assert only["kinds"] == ["program_started", "stopped"] and (tmp_path / "saved").exists()


#: Saves a second after SIGTERM.
SAVES_LATE = """
import os, pathlib, shardyard, signal, sys, time
root = pathlib.Path(sys.argv[1])
def save(*_):
    time.sleep(1)
    os.environ["LOCAL_RANK"] = "1"  # where one program is started for two ranks
    shardyard.log({"saved": 1.0}, step=0)
    (root / "saved").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
(root / "ready").touch()
time.sleep(600)
"""


def test_what_a_shell_has_started_may_save_when_the_shell_has_ended(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SAVES_LATE)
    command = ("/bin/sh", "-c", f"{sys.executable} script.py {tmp_path}; true")
    program = Program("a-job", command, cwd=str(tmp_path))
    (only,) = spawn(_rank, 1, program.to_json(), [str(tmp_path / "ready")])
    assert (tmp_path / "saved").exists()
    assert only["kinds"] == ["program_started", "metrics", "stopped"]


def test_other_ranks_of_a_node_stay_while_its_program_saves(tmp_path: Path) -> None:
    """What it sends to the second rank arrives there."""
    first, second = run(SAVES_LATE, tmp_path, stop_when=["ready"], launcher=("-B",))
    assert first["kinds"] == ["program_started", "stopped"]
    assert second["kinds"] == ["metrics", "stopped"]


@pytest.mark.parametrize("hook", ["", "import sys; sys.excepthook = lambda *_: None"])
def test_the_programs_own_start_up_code_runs(tmp_path: Path, hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of the user's own may replace the report of exceptions; then the exit status is all that is known."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import builtins; builtins.OWN = 7")
    (tmp_path / "script.py").write_text(f"{hook}\nraise ValueError(OWN)\n")
    command = ("/bin/sh", "-c", f"PYTHONPATH=$PYTHONPATH:{tmp_path}/own {sys.executable} script.py")
    (only,) = spawn(_rank, 1, Program("a-job", command, cwd=str(tmp_path)).to_json(), "")
    failed = only["failed"]
    assert (failed.type, failed.message) == (
        ("ProgramFailed", "the program exited with status 1") if hook else ("ValueError", "7")
    )


#: Rank 0's thread of gloo gets the other's message while the end of the interpreter holds the GIL, and waits for that. Without the agent
#: torch 2.13 aborts rank 0 then, each time. The end goes on when rank 1 has the sum and rank 0 has had time to get its own.
LATE = """
import atexit, ctypes, os, pathlib, time
if os.environ["RANK"] == "0":
    os.mkfifo("end")
    atexit.register(ctypes.PyDLL(None).read, os.open("end", os.O_RDWR), ctypes.create_string_buffer(1), 1)
    atexit.register(pathlib.Path("ending").touch)
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(2), async_op=True)
else:
    while not os.path.exists("ending"):
        time.sleep(0.01)
    time.sleep(0.2)
    dist.all_reduce(torch.ones(2))
    time.sleep(1)
    os.write(os.open("end", os.O_RDWR), b"x")
"""


def test_a_late_thread_of_gloo_does_not_abort_a_program_at_its_end(tmp_path: Path) -> None:
    assert [rank["failed"] for rank in run(LATE, tmp_path)] == [None, None]


def test_an_exception_waits_for_stuck_storage_only_until_another_rank_has_failed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor then waits `ROOT_CAUSE_S` for the failure from which the other one's follows."""
    import torch.distributed as dist

    assert max(2 * artifact_uploads.HURRIED_S, launch.OTHERS_S + artifact_uploads.HURRIED_S) < ROOT_CAUSE_S
    monkeypatch.setattr(artifact_uploads, "FLUSH_S", PATIENCE_S * 10)
    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    released = threading.Event()
    limits = ArtifactStorage(str(tmp_path), "", file_bytes=1, bytes=1, files=1)
    uploads = ArtifactUploads(limits, lambda *_: True, lambda _: (released.wait(), None)[1])
    uploads.add(os.memfd_create("logged"), [LoggedFile("f", None, "file", 0, 0)])
    reports: Any = launch._Reports(None, None, uploads, store, ExitStack())  # type: ignore[arg-type]
    instruments = Instruments(stop_request=lambda: StopRequest.NO)
    flushing = threading.Thread(target=launch._flush, args=(reports, instruments), kwargs={"failed": True})
    flushing.start()
    flushing.join(2 * artifact_uploads.HURRIED_S)
    assert flushing.is_alive()
    store.add(launch._FAILED, 1)
    flushing.join(PATIENCE_S)
    assert not flushing.is_alive()
    released.set()


def test_what_workers_of_ray_have_logged_is_stored_when_the_job_is_paused(tmp_path: Path) -> None:
    """On a node without the driver, too."""

    class Ended:
        def attend(self, _: Any) -> bool:
            raise EndRequested

    asked, stored = threading.Event(), list[Artifact]()

    def store(some: Sequence[Artifact]) -> None:
        if asked.wait(PATIENCE_S):
            stored.extend(some)

    limits = ArtifactStorage(str(tmp_path), "", file_bytes=1, bytes=1, files=1)
    uploads = ArtifactUploads(limits, lambda *_: True, store)
    uploads.add(os.memfd_create("logged"), [LoggedFile("f", None, "file", 0, 0)])
    reports: Any = launch._Reports(None, None, uploads, None, ExitStack())  # type: ignore[arg-type]
    ended: Any = Ended()
    instruments = Instruments(stop_request=lambda: (asked.set(), StopRequest.STOP)[1])
    with pytest.raises(EndRequested):
        launch._attend(Program("a-job", ("true",)), Start(tmp_path, {}), ended, reports, instruments)
    assert [one.name for one in stored] == ["f"]


@pytest.mark.parametrize(("asked", "stored"), [(StopRequest.SAVE, True), (StopRequest.STOP, False)])
def test_logged_files_have_their_time_where_a_job_is_to_save_and_end(
    asked: StopRequest, stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pause. A cancel shortens it, also one that comes later."""
    monkeypatch.setattr(artifact_uploads, "STOP_S", 0.0)
    released, abandoned = threading.Event(), threading.Event()
    monkeypatch.setattr(artifact_uploads, "_warn", lambda _: abandoned.set())
    requests = [StopRequest.SAVE] * 3

    def request() -> StopRequest:
        if requests:
            return requests.pop()
        released.set() if stored else None
        return asked

    limits = ArtifactStorage(str(tmp_path), "", file_bytes=1, bytes=1, files=1)
    uploads = ArtifactUploads(limits, lambda *_: True, lambda _: (released.wait(PATIENCE_S), None)[1])
    uploads.add(os.memfd_create("logged"), [LoggedFile("f", None, "file", 0, 0)])
    reports: Any = launch._Reports(None, None, uploads, None, ExitStack())  # type: ignore[arg-type]
    launch._flush(reports, Instruments(stop_request=request))
    assert abandoned.is_set() != stored and not requests
    released.set()


TORCHRUN = ("-m", "torch.distributed.run")


@pytest.mark.full
def test_a_command_per_node_may_be_torchrun_itself(tmp_path: Path) -> None:
    """It takes its options from the environment, and its workers are the job's ranks: their metrics are those of their ranks."""
    script = DDP.replace(
        "dist.destroy_process_group()",
        "import shardyard\nshardyard.log({'x': dist.get_rank()}, step=0, per_rank=True)\ndist.destroy_process_group()",
    )
    first, second = run(script, tmp_path, launcher=TORCHRUN)
    assert (first["failed"], second["failed"]) == (None, None)
    assert (first["kinds"], second["kinds"]) == (["program_started", "metrics"], ["metrics"])
    assert {path.name for path in tmp_path.glob("*.pt")} == {"0.pt", "1.pt"}


def test_an_exception_under_torchrun_is_that_of_its_rank(tmp_path: Path) -> None:
    """Torchrun's own exception, which follows from it, is not the cause."""
    script = "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('this is wrong')\n"
    first, second = run(script, tmp_path, launcher=TORCHRUN)
    assert (second["failed"].type, second["failed"].message) == ("ValueError", "this is wrong")
    assert first["failed"].type == "ChildFailedError"


def test_a_rank_killed_under_torchrun_below_a_shell_ends_by_its_signal(tmp_path: Path) -> None:
    """So that it is replaced, as where torchrun is the command itself."""
    (tmp_path / "script.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    text = f"{sys.executable} {' '.join(TORCHRUN)} script.py; exit $?"
    program = Program("a-job", ("/bin/sh", "-c", text), cwd=str(tmp_path), per_node=True)
    with pytest.raises(RuntimeError, match=r"rank 0 died without a word.*SIGKILL"):
        spawn(_rank, 1, program.to_json(), [])


@pytest.mark.parametrize("launcher", [("-B",), pytest.param(TORCHRUN, marks=pytest.mark.full)])
def test_a_part_is_that_of_its_rank_under_torchrun(launcher: tuple[str, ...], tmp_path: Path) -> None:
    """After a repair the first node has the ranks 0 and 2 of the gang, which are 0 and 1 of torchrun."""
    script = """
import os, pathlib, shardyard, subprocess, sys
if "RANK" not in os.environ:  # there is no launcher: it is one
    first, here = 2 * int(os.environ["PET_NODE_RANK"]), int(os.environ["PET_NPROC_PER_NODE"])
    for local in range(here):
        env = os.environ | {"LOCAL_RANK": str(local), "RANK": str(first + local)}
        subprocess.run([sys.executable, *sys.argv], env=env, check=True)
    sys.exit()
part = pathlib.Path(sys.argv[1], os.environ["RANK"])
part.touch()
shardyard.checkpoint(part, 1, ranks="all")
"""
    ranks = run(script, tmp_path, world=3, launcher=launcher, nodes=(0, 1, 0))
    assert not any(one["failed"] for one in ranks)
    saved = read_program(folder(folder_at(str(tmp_path / "storage")), 1))
    assert {rank: [*paths] for rank, paths in saved.parts.items()} == {0: ["0"], 1: ["1"], 2: ["2"]}


@pytest.mark.parametrize(("launcher", "known"), [(("-B",), [0, 1]), ((), [0])])
def test_what_is_logged_has_the_restarts_of_a_launcher(
    launcher: tuple[str, ...], known: list[int], tmp_path: Path
) -> None:
    """Where the job starts the ranks itself, their count is that of the generation."""
    script = """
import os, shardyard, subprocess, sys
if "RANK" in os.environ:
    shardyard.log({"x": 1}, step=1)
else:  # there is no launcher: it is one
    for restarts in ("0", "1"):
        env = os.environ | {"RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": restarts}
        subprocess.run([sys.executable, *sys.argv], env=env, check=True)
"""
    (rank,) = run(script, tmp_path, world=1, launcher=launcher)
    assert rank["failed"] is None and rank["restarts"] == known


@pytest.mark.full
def test_ranks_that_torchrun_starts_again_continue_from_the_newest_checkpoint(tmp_path: Path) -> None:
    script = """
import os, pathlib, shardyard, sys
rank, root = os.environ["RANK"], pathlib.Path(sys.argv[1])
shardyard.log({"x": 1}, step=1)
saved = shardyard.resume()
if saved is None:
    (root / rank).touch()
    shardyard.checkpoint(root / rank, 5, ranks="all")
    while not (root / "storage/step-00000005/manifest.json").exists():
        pass
    sys.exit(1)
(root / f"from-{saved.step}-{rank}").touch()
"""
    ranks = run(script, tmp_path, launcher=(*TORCHRUN, "--max-restarts", "1"))
    assert not any(one["failed"] for one in ranks)
    assert all((tmp_path / f"from-5-{rank}").exists() for rank in range(2))
    assert [one["restarts"] for one in ranks] == [[0, 1], [0, 1]]


@pytest.mark.full
def test_a_hang_under_torchrun_is_seen_in_its_rank(tmp_path: Path) -> None:
    script = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
def forgets():
    time.sleep(600)
if dist.get_rank() == 1:
    forgets()
dist.all_reduce(torch.ones(3))
"""
    ranks = run(script, tmp_path, stop_when=STUCK, launcher=TORCHRUN)
    first, second = (one["status"] for one in ranks)
    (waiting,) = first["collectives"]
    assert (waiting["op"], waiting["seq"]) == ("all_reduce", 2)
    assert any("forgets" in frame for stack in second["stacks"] for frame in stack["frames"])
    assert [one["kinds"][-1] for one in ranks] == ["stopped", "stopped"]
