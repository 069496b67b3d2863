"""Programs on terminals of a gate: size, keys, signals, their end with a client or beyond it."""

import asyncio
import os
import signal

import pytest
from harness.gates import control, gate, gone, is_alive, shown, terminal
from harness.patience import PATIENCE_S

from shardyard.workers.messages.stream_frames import CONTROL, DATA, MOST_FRAME, Stream


async def test_a_program_has_a_terminal_of_the_clients_size_and_gets_its_keys() -> None:
    async with gate() as (port, _):
        script = 'stty size; echo "$TERM"; read line; echo "got $line"; exit 7'
        stream = await terminal(port, "sh", "-c", script, rows=30, columns=99)
        await shown(stream, "30 99\r\n", "xterm\r\n")
        await stream.send(DATA, b"hello\r")
        await shown(stream, "got hello\r\n")
        assert await control(stream) == {"exit": 7}
        assert await stream.read() is None


@pytest.mark.parametrize("disposition", [signal.SIG_DFL, signal.SIG_IGN], ids=["as usual", "of a background job"])
async def test_a_new_size_and_ctrl_c_are_signals(disposition: signal.Handlers) -> None:
    """Also where the control plane was started as `shardyard up &`."""
    before = signal.signal(signal.SIGINT, disposition)
    try:
        async with gate() as (port, _):
            script = 'trap "stty size" WINCH; trap "exit 9" INT; echo ready; while :; do sleep 0.05; done'
            stream = await terminal(port, "sh", "-c", script)
            await shown(stream, "ready")
            await stream.control({"rows": 11, "columns": 222})
            await shown(stream, "11 222\r\n")
            await stream.send(DATA, b"\x03")
            assert await control(stream) == {"exit": 9}
    finally:
        signal.signal(signal.SIGINT, before)


async def test_signals_that_a_rank_ignores_reach_its_terminals() -> None:
    """As where Ray was started with nohup, or in the background of a script: a shell cannot trap what it inherits as ignored."""
    async with gate("sh", "-c", 'trap "" HUP INT QUIT; exec "$@"', "sh") as (port, _):
        stream = await terminal(port, "sh", "-c", 'trap "exit 9" INT; echo ready; while :; do sleep 0.05; done')
        await shown(stream, "ready")
        await stream.send(DATA, b"\x03")
        assert await control(stream) == {"exit": 9}


async def test_what_ends_by_a_signal_and_what_cannot_be_started_have_a_shells_status() -> None:
    async with gate() as (port, _):
        killed = await terminal(port, "sh", "-c", "kill -9 $$")
        assert await control(killed) == {"exit": 137}
        absent = await terminal(port, "no-such-command")
        await shown(absent, "'no-such-command' cannot be started")
        assert await control(absent) == {"exit": 127}


async def test_a_pipe_in_it_ends_as_in_any_shell() -> None:
    """Python ignores SIGPIPE; a program that inherits that prints an error, or never ends."""
    async with gate() as (port, _):
        stream = await terminal(port, "sh", "-c", "yes | head -n 1; echo end")
        text = await shown(stream, "end\r\n")
        assert text == "y\r\nend\r\n"


async def test_a_client_that_vanishes_takes_its_program_along_with_all_of_its_session() -> None:
    async with gate() as (port, process):
        script = 'trap "" HUP; sleep 1000 & echo "pids $$ $!."; wait'
        stream = await terminal(port, "sh", "-c", script)
        text = await shown(stream, "pids ", ".")
        pids = [int(word) for word in text.partition("pids ")[2].partition(".")[0].split()]
        assert all(map(is_alive, pids))
        stream.abort()
        await gone(*pids)
        assert process.returncode is None


#: Prints the id of a process of its session that ignores SIGHUP, as one of `nohup` does.
NOHUP = 'trap "" HUP; sleep 1000 & trap - HUP; echo "pid $!."; '


async def nohup(stream: Stream) -> int:
    return int((await shown(stream, "pid ", ".")).partition("pid ")[2].partition(".")[0])


@pytest.mark.parametrize("then", ["exec cat", ""], ids=["vanishes", "ends"])
async def test_what_ignores_the_hang_up_does_not_outlive_a_program_that_obeys_it(then: str) -> None:
    async with gate() as (port, _):
        stream = await terminal(port, "sh", "-c", NOHUP + then)
        pid = await nohup(stream)
        if then:
            stream.abort()
        else:
            assert await control(stream) == {"exit": 0}
        await gone(pid)


async def test_what_a_kept_shell_has_left_continues() -> None:
    async with gate() as (port, _):
        stream = await terminal(port, "sh", "-c", NOHUP, keep=True)
        pid = await nohup(stream)
        assert await control(stream) == {"exit": 0}
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)


async def test_a_kept_shell_outlives_its_client_and_shows_the_next_what_was_last() -> None:
    async with gate() as (port, _):
        first = await terminal(port, "sh", keep=True)
        await first.send(DATA, b"x=kept; echo is $x\r")
        await shown(first, "is kept\r\n")
        first.abort()
        second = await terminal(port, keep=True)
        await shown(second, "is kept\r\n")
        await second.send(DATA, b"echo still $x\r")
        await shown(second, "still kept\r\n")
        third = await terminal(port, keep=True)
        assert await control(second) == {"replaced": True}
        assert await second.read() is None
        await third.send(DATA, b"exit 5\r")
        assert await control(third) == {"exit": 5}
        other = await terminal(port, "sh", "-c", "echo other", keep=True)
        await shown(other, "other\r\n")
        assert await control(other) == {"exit": 0}


async def test_a_kept_program_never_waits_for_a_client_and_the_newest_of_its_output_stays() -> None:
    async with gate() as (port, _):
        first = await terminal(port, "sh", "-c", "read go; seq 200000; echo end; read go", keep=True)
        await first.send(DATA, b"\r")
        first.abort()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                again = await terminal(port, keep=True)
                frame = await again.read()
                again.abort()
                assert frame is not None and frame[0] == DATA and len(frame[1]) <= MOST_FRAME
                if frame[1].endswith(b"199999\r\n200000\r\nend\r\n"):
                    break
        last = await terminal(port, keep=True)
        await last.send(DATA, b"\r")
        assert await control(last) == {"exit": 0}


async def test_a_client_that_reads_slowly_gets_all_of_it() -> None:
    lines = 100_000
    async with gate() as (port, _):
        stream = await terminal(port, "sh", "-c", f"stty -onlcr; seq {lines}")
        await asyncio.sleep(0.5)  # buffers fill meanwhile
        content = b""
        async with asyncio.timeout(PATIENCE_S):
            while (frame := await stream.read()) is not None and frame[0] == DATA:
                content += frame[1]
        assert content == b"".join(b"%d\n" % number for number in range(1, lines + 1))
        assert frame == (CONTROL, b'{"exit": 0}')


@pytest.mark.full
async def test_a_client_that_vanishes_behind_input_that_nothing_reads_is_noticed() -> None:
    async with gate() as (port, process):
        stream = await terminal(port, "sh", "-c", "stty raw; echo pid $$.; exec sleep 1000")
        pid = int((await shown(stream, "pid ", ".")).partition("pid ")[2].partition(".")[0])
        sending = asyncio.create_task(stream.send(DATA, b"x" * (1 << 20)))
        await asyncio.sleep(0.5)
        sending.cancel()
        stream.abort()
        await gone(pid)
        assert process.returncode is None
