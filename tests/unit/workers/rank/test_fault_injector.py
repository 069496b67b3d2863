import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.checkpoint.manifest import Manifest, write
from shardyard.workers.messages.fault_request import Fault
from shardyard.workers.rank import fault_injector
from shardyard.workers.rank.fault_injector import FaultInjector, corrupt
from shardyard.workers.storage.local_folder import LocalFolder


class Process:
    """A real process in a trainer's place."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.pid: int | None = process.pid
        self.gone = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self.signals: list[int] = []

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.signals.append(number)
        self.process.send_signal(number)

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)


async def sleeping() -> Process:
    return Process(await asyncio.create_subprocess_exec("sleep", "600"))


async def test_a_fault_is_injected_once_however_often_it_is_ordered() -> None:
    trainer, faults = await sleeping(), FaultInjector()
    hang, kill = Fault("fault-1", "hang-rank", 0), Fault("fault-2", "kill-rank", 0)
    for fault in (hang, hang, kill, kill):
        assert f"process {trainer.pid}" in str(await faults.inject(fault, trainer, None))
    assert trainer.signals == [signal.SIGSTOP, signal.SIGKILL]
    assert await trainer.process.wait() == -signal.SIGKILL


async def test_no_rank_gets_a_fault_where_there_is_no_trainer() -> None:
    trainer, faults = await sleeping(), FaultInjector()
    kill = Fault("fault-1", "kill-rank", 0)
    assert await faults.inject(kill, None, None) is None
    trainer.gone.set()
    assert await faults.inject(kill, trainer, None) is None
    trainer.gone.clear()
    assert await faults.inject(kill, trainer, None) is not None
    await trainer.process.wait()


async def test_slowness_goes_on_in_the_next_trainer_for_what_is_left_of_it() -> None:
    trainer, faults = await sleeping(), FaultInjector()
    assert faults.inherited() == {}
    await faults.inject(Fault("fault-1", "slow-rank", 0, 250.0, 1000.0), trainer, None)
    [sent], then = trainer.sent, faults.inherited()
    assert sent["slow"]["by_s"] == then["slow"]["by_s"] == 0.25
    assert 0 < then["slow"]["duration_s"] < sent["slow"]["duration_s"] <= 1000
    await faults.inject(Fault("fault-2", "kill-rank", 0), trainer, None)
    await trainer.process.wait()


def test_one_bit_of_the_newest_complete_checkpoint_is_flipped(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    for step in (10, 20, 30):
        folder = tmp_path / f"step-{step:08d}"
        folder.mkdir()
        (folder / "rank-00000.safetensors").write_bytes(content)
        if step < 30:  # the last one was cut off
            write(LocalFolder(str(folder)), Manifest(step, {}, {}, {}))
    assert "step-00000020" in corrupt(str(tmp_path))
    changed = {
        folder.name: sum(
            (a ^ b).bit_count() for a, b in zip((folder / "rank-00000.safetensors").read_bytes(), content, strict=True)
        )
        for folder in tmp_path.iterdir()
    }
    assert changed == {"step-00000010": 0, "step-00000020": 1, "step-00000030": 0}


def test_without_a_checkpoint_there_is_nothing_to_corrupt(tmp_path: Path) -> None:
    assert "no checkpoint" in corrupt(str(tmp_path / "none"))


async def test_a_checkpoint_is_corrupted_once_also_if_the_fault_comes_again_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the time in which an actor has to answer, of a large file on slow storage."""
    injected: list[str] = []

    def slowly(checkpoints: str) -> str:
        injected.append(checkpoints)
        return "a bit was flipped"

    monkeypatch.setattr(fault_injector, "corrupt", slowly)
    faults, fault = FaultInjector(), Fault("fault-1", "corrupt-checkpoint")
    found = await asyncio.gather(*(faults.inject(fault, None, str(tmp_path)) for _ in range(3)))
    assert found == ["a bit was flipped"] * 3 and injected == [str(tmp_path)]
