"""Commands beside a real process: in its folder, with its variables, once, masked, and with nothing left."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness.gates import DIGEST, end_streams, gone, is_alive, shown, terminal
from harness.patience import PATIENCE_S

from shardyard.workers import process_stat
from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.messages.exec_request import GATE, Exec, ExecEnd
from shardyard.workers.program.agents import listening
from shardyard.workers.program.environment import environment
from shardyard.workers.program.report_socket import SOCKET
from shardyard.workers.rank import command_runner, log_pipe, process_tree
from shardyard.workers.rank.command_runner import CommandRunner, Place
from shardyard.workers.rank.log_pipe import Logs
from shardyard.workers.rank.secret_mask import SecretMask

SECRET = "a-secret-of-the-job"


class Log:
    """What was printed, in order. `until` waits for a line."""

    has_room = True

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.streams: set[str] = set()
        self._came = asyncio.Event()

    def put(self, stream: str, lines: list[bytes]) -> None:
        self.streams |= {stream} if lines else set()
        self.lines += [line.decode() for line in lines]
        self._came.set()

    async def until(self, begin: str) -> str:
        async with asyncio.timeout(PATIENCE_S):
            while not any(line.startswith(begin) for line in self.lines):
                await self._came.wait()
                self._came.clear()
        return next(line for line in self.lines if line.startswith(begin))


@contextmanager
def program(folder: Path, runs: str = "exec sleep 1000", **more: str) -> Iterator[int]:
    """A shell below which a program runs, as below a trainer process; by the id of the shell's process. `more`: variables."""
    env = {"PATH": os.environ["PATH"], "KEY": SECRET, "RANK": "3", **more}
    shell = subprocess.Popen(
        ["sh", "-c", f"sh -c 'echo ready; {runs}' & wait"],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert shell.stdout is not None
    try:
        assert shell.stdout.readline() == b"ready\n"
        until_it_sleeps(process_tree.pids(shell.pid)[1])
        yield shell.pid
    finally:
        subprocess.run(["kill", "-9", "--", f"-{shell.pid}"], check=True)
        shell.wait()
        shell.stdout.close()


def until_it_sleeps(pid: int) -> None:
    """A process has no variables while it turns into `sleep`."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := process_stat.read(pid)).name != "sleep" or found.state != "S":
        assert time.monotonic() < deadline
        time.sleep(0.005)


def leap(monkeypatch: pytest.MonkeyPatch, has_leapt: Callable[[], bool]) -> None:
    """The runner's clock leaps by an hour: a command has then begun before its time is over, however slow the machine is."""
    leaping = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600 * has_leapt(), sleep=time.sleep)
    monkeypatch.setattr(command_runner, "time", leaping)


def order(name: str, *command: str, seconds: int = 1000) -> Exec:
    return Exec(name, 3, command, seconds)


def place(pid: int, gone: asyncio.Event | None = None) -> Place:
    return Place(pid, True, SecretMask([SECRET]), (gone or asyncio.Event()).is_set, {})


async def ran(runner: CommandRunner, wanted: Exec, where: Place) -> ExecEnd:
    async with asyncio.timeout(PATIENCE_S):
        end = await runner.run(wanted, where)
    assert end is not None
    return end


async def test_it_runs_once_in_the_programs_folder_with_its_variables_and_secrets_are_masked(tmp_path: Path) -> None:
    log = Log()
    runner = CommandRunner(log)
    with program(tmp_path) as pid:
        once = order(
            "x1", "sh", "-c", 'echo "$RANK $KEY"; pwd; echo "to stderr" >&2; echo x >> ran; printf end; exit 7'
        )
        ends = await asyncio.gather(*(ran(runner, once, place(pid)) for _ in range(3)))
        absent = await ran(runner, order("x2", "no-such-command"), place(pid))
        killed = await ran(runner, order("x3", "sh", "-c", "kill -9 $$"), place(pid))
    assert ends == [ExecEnd("exit status 7", 7)] * 3
    assert log.lines[:4] == ["3 ***", str(tmp_path), "to stderr", "end"]
    assert await asyncio.to_thread((tmp_path / "ran").read_text) == "x\n"
    assert absent.status == 127 and "'no-such-command' cannot be started" in log.lines[4]
    assert killed.status == 137


async def test_where_no_process_is_now_the_end_of_one_that_ran_is_known_and_nothing_begins(tmp_path: Path) -> None:
    runner = CommandRunner(Log())
    with program(tmp_path) as pid:
        end = await ran(runner, order("x1", "true"), place(pid))
    assert await runner.run(order("x1", "true"), None) == end
    assert await runner.run(order("x2", "true"), None) is None


async def test_any_failure_ends_a_command(tmp_path: Path) -> None:
    """Without an end its supervisor would send it again for ever."""

    class Broken(Log):
        def put(self, _stream: str, _lines: list[bytes]) -> None:
            raise RuntimeError("can't start new thread")

    with program(tmp_path) as pid:
        end = await ran(CommandRunner(Broken()), order("x1", "echo", "hello"), place(pid))
    assert end == ExecEnd("the command failed beside the rank: RuntimeError: can't start new thread")


async def test_its_time_limit_and_the_ranks_end_kill_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, gone = Log(), asyncio.Event()
    leap(monkeypatch, lambda: any(line.startswith("late") for line in log.lines))
    runner = CommandRunner(log)
    escapes = 'setsid sleep 1000 & echo "{} $!"; exec sleep 1000'
    with program(tmp_path) as pid:
        late = await ran(runner, order("x1", "sh", "-c", escapes.format("late")), place(pid))
        running = asyncio.create_task(runner.run(order("x2", "sh", "-c", escapes.format("gone")), place(pid, gone)))
        await log.until("gone")
        gone.set()
        async with asyncio.timeout(PATIENCE_S):
            ended = await running
    assert late == ExecEnd("the command did not end within 1000 s")
    assert ended == ExecEnd("the rank's process ended before the command")
    left = [(await log.until(name)).split()[1] for name in ("late", "gone")]
    assert not any(os.access(f"/proc/{pid}", os.F_OK) for pid in left)


async def test_beside_a_program_that_has_overwritten_its_variables_the_trainers_count(tmp_path: Path) -> None:
    log = Log()
    with program(tmp_path, "exec env -i sleep 1000") as pid:
        where = place(pid)._replace(env={"GREETING": "hi", "PATH": os.environ["PATH"]})
        await ran(CommandRunner(log), order("x1", "sh", "-c", "echo $GREETING$RANK"), where)
    assert log.lines == ["hi"]


@pytest.mark.parametrize("roles", [("node", "driver"), ("node",)])
async def test_the_node_of_a_ray_job_is_not_its_program(roles: tuple[str, ...], tmp_path: Path) -> None:
    """It was started before the driver. Where another rank's node has the driver it is alone, with its agents, which set their titles."""
    log = Log()
    runs = {"node": "sh -c 'env -i sleep 1000 & exec sleep 1000'", "driver": "sleep 1000"}
    started = " & ".join(f"SHARDYARD_RAY={role} NAME={role} {runs[role]}" for role in roles)
    shell = await asyncio.to_thread(
        subprocess.Popen, ["sh", "-c", f"{started} & wait"], cwd=tmp_path, start_new_session=True
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(below := process_tree.pids(shell.pid)[1:]) <= len(roles):
            assert time.monotonic() < deadline
        for pid in below:
            until_it_sleeps(pid)
        await ran(CommandRunner(log), order("x1", "sh", "-c", "echo $NAME"), place(shell.pid))
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        await asyncio.to_thread(shell.wait)
    assert log.lines == [roles[-1]]


async def test_what_a_python_process_of_a_command_does_is_not_the_programs(tmp_path: Path) -> None:
    """Its exception would be taken for the cause if the program fails later. A program's own `sitecustomize` counts for it, too."""
    (tmp_path / "sitecustomize.py").write_text("print('own')")
    log = Log()
    with listening(lambda *_: None) as agents:
        env = environment({}, [agents.name], None, {"PYTHONPATH": str(tmp_path)})
        with program(tmp_path, **{name: env[name] for name in (SOCKET, "PYTHONPATH", "PYTHONUNBUFFERED")}) as pid:
            raises = "import shardyard; raise ValueError(shardyard.__name__)"
            end = await ran(CommandRunner(log), order("x1", sys.executable, "-c", raises), place(pid))
        assert end.status == 1 and (log.lines[0], log.lines[-1]) == ("own", "ValueError: shardyard")
        assert agents.failures(time.monotonic()) == {}


class SlowlyRead(Logs):
    """A rank's log that is read only where it has had no room three times."""

    def __init__(self) -> None:
        super().__init__(3, Spool(1 << 20))
        self.refusals = 0
        self.lines: list[str] = []

    @property
    def has_room(self) -> bool:
        if (room := super().has_room) is False:
            self.refusals += 1
            if self.refusals % 3 == 0:
                self.read()
        return room

    def read(self) -> None:
        while events := self.spool.take(self.spool.last - len(self.spool.newer(0))):
            self.lines += [line for event in events for line in event["data"]["lines"]]
            self.spool.take(events[-1]["seq"])


class Unread(Logs):
    """A rank's log that is not read. `full`: whether it has had no room."""

    full = False

    @property
    def has_room(self) -> bool:
        self.full = self.full or not super().has_room
        return not self.full


async def test_a_command_waits_for_the_log_until_its_time_limit_and_no_line_of_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pipe, "PUT_BYTES", 200_000)
    read, unread = SlowlyRead(), Unread(3, Spool(1 << 20))
    leap(monkeypatch, lambda: unread.full)
    with program(tmp_path) as pid:
        end, late = await asyncio.gather(
            ran(CommandRunner(read), order("x1", "seq", "80000", seconds=10_000), place(pid)),
            ran(CommandRunner(unread), order("x2", "yes"), place(pid)),
        )
    read.read()
    assert end.status == 0 and read.refusals > 0
    assert read.lines == [str(number) for number in range(1, 80_001)]
    assert late == ExecEnd("the command did not end within 1000 s")
    assert unread.spool.take(0)


async def test_a_rank_that_prints_faster_than_its_log_is_read_displaces_no_line_of_a_command(tmp_path: Path) -> None:
    logs = Logs(3, Spool(100_000))
    while not logs.dropped:
        logs.add("stdout", [b"x" * 1000])
    before = logs.spool.last
    with program(tmp_path) as pid:
        await ran(CommandRunner(logs), order("x1", "echo", "hello"), place(pid))
    assert [event["data"]["lines"] for event in logs.spool.newer(before)] == [["hello"]]


async def test_a_command_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    with program(tmp_path) as pid:
        closes = order("x1", "sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 5")
        assert (await ran(CommandRunner(Log()), closes, place(pid))).status == 5


async def test_a_rank_that_has_just_ended_runs_nothing(tmp_path: Path) -> None:
    with program(tmp_path) as pid:
        pass
    end = await ran(CommandRunner(Log()), order("x1", "true"), place(pid))
    assert end.status is None and "could not be started" in end.message


async def test_a_gate_runs_beside_commands_and_takes_its_terminals_along(tmp_path: Path) -> None:
    log, ended = Log(), asyncio.Event()
    runner = CommandRunner(log)
    with program(tmp_path) as pid:
        where = place(pid, ended)
        serving = asyncio.create_task(runner.run(order("x1", GATE, "0-name", DIGEST), where))
        port = int((await log.until("0-name listens on 127.0.0.1 ")).split()[-1])
        stream = await terminal(port, "sh", "-c", 'echo "$RANK $PWD"; trap "" HUP; echo "pid $$."; read line')
        text = await shown(stream, f"3 {tmp_path}\r\n", ".\r\n")
        shell = int(text.partition("pid ")[2].partition(".")[0])
        assert log.streams == {"gate"}
        assert (await ran(runner, order("x2", "sh", "-c", "echo 4; exit 4"), where)).status == 4
        assert log.streams == {"gate", "exec"}
        assert is_alive(shell) and not serving.done()
        ended.set()
        async with asyncio.timeout(PATIENCE_S):
            assert await serving == ExecEnd("the rank's process ended before the command")
        await end_streams()
        await gone(shell)


async def test_a_gate_of_a_new_access_token_opens_beside_one_whose_shell_is_kept(tmp_path: Path) -> None:
    log, ended = Log(), asyncio.Event()
    runner = CommandRunner(log)
    with program(tmp_path) as pid:
        where = place(pid, ended)
        old = asyncio.create_task(runner.run(order("x1", GATE, "0-old", DIGEST), where))
        port = int((await log.until("0-old listens on 127.0.0.1 ")).split()[-1])
        await terminal(port, "sh", keep=True)
        new = asyncio.create_task(runner.run(order("x2", GATE, "0-new", "another"), where))
        await log.until("0-new listens on 127.0.0.1 ")
        assert not old.done()
        ended.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(old, new)
        await end_streams()


async def test_a_gate_with_other_arguments_is_none(tmp_path: Path) -> None:
    with program(tmp_path) as pid:
        end = await ran(CommandRunner(Log()), order("x1", GATE), place(pid))
    assert end.status == 2
