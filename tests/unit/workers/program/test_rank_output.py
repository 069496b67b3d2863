"""Lines of several ranks on one stream."""

import os
import select
import tempfile
import threading
from array import array
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.metric_block import MetricBlock, packed
from shardyard.workers.program.rank_output import RankOutput


def printed(ranks: int, write: Any) -> str:
    """What an output prints while `write` is called with it."""
    with tempfile.TemporaryFile() as file:
        output = RankOutput(ranks, {"stdout": file.fileno(), "stderr": file.fileno()})
        write(output)
        output.finish()
        file.seek(0)
        return file.read().decode()


def piped(text: bytes, ranks: int = 2) -> str:
    def write(output: RankOutput) -> None:
        read, end = os.pipe()
        output.follow(1, "stdout", os.fdopen(read, "rb"))
        with os.fdopen(end, "wb") as pipe:
            pipe.write(text)

    return printed(ranks, write)


def test_each_line_has_its_rank_also_those_of_a_progress_bar_and_the_last_one() -> None:
    assert piped(b"a\r\n10%\r20%\rend") == "[rank 1] a\n[rank 1] 10%\n[rank 1] 20%\n[rank 1] end\n"


def test_a_single_rank_has_no_name() -> None:
    assert piped(b"a\n", ranks=1) == "a\n"


def test_a_line_without_an_end_is_printed_in_parts() -> None:
    found = piped(b"x" * 200_000).splitlines()
    assert "".join(line.removeprefix("[rank 1] ") for line in found) == "x" * 200_000
    assert all(len(line) <= 2 * 65_536 for line in found)


def test_of_many_steps_the_last_are_printed() -> None:
    block = MetricBlock(("a", "b"), tuple(range(12)), packed(array("d", [1.0, float("nan")] * 12)))
    lines = printed(2, lambda output: output.print_metrics(0, [block])).splitlines()
    assert len(lines) == 10 and lines[-1] == "[rank 0] step 11: a 1, b not finite"


def test_a_reader_that_is_gone_is_noticed() -> None:
    read, end = os.pipe()
    os.close(read)
    output = RankOutput(1, {"stdout": end})
    output.print_line(0, "stdout", b"a")
    os.close(end)
    assert output.closed.is_set()


def test_a_full_pipe_that_does_not_block_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not a reader that is gone, which would end the run."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    waits, usual = threading.Event(), select.select

    def selecting(*descriptors: Any) -> Any:
        waits.set()
        return usual(*descriptors)

    monkeypatch.setattr(select, "select", selecting)
    output, line = RankOutput(2, {"stdout": write, "stderr": write}), b"x" * (1 << 20)

    def printing() -> None:
        output.print_line(1, "stdout", line)
        os.close(write)

    thread = threading.Thread(target=printing)
    thread.start()
    assert waits.wait(PATIENCE_S)
    with os.fdopen(read, "rb") as pipe:
        found = pipe.read()
    thread.join()
    assert found == b"[rank 1] " + line + b"\n" and not output.closed.is_set()


def test_an_end_of_a_line_that_comes_in_two_parts_is_one_end() -> None:
    (source, end), (read, write) = os.pipe(), os.pipe()
    output = RankOutput(2, {"stdout": write, "stderr": write})
    output.follow(1, "stdout", os.fdopen(source, "rb"))
    with os.fdopen(read, "rb") as printed_, os.fdopen(end, "wb", buffering=0) as rank:
        rank.write(b"a\r")
        assert printed_.readline() == b"[rank 1] a\n"
        rank.write(b"\nb\n\n")
        assert [printed_.readline() for _ in range(2)] == [b"[rank 1] b\n", b"[rank 1] \n"]
    output.finish()
    os.close(write)
