"""`deterministic: true` reaches torch, cuBLAS and NCCL of a trainer before its groups are formed."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.models import LLAMA
from harness.ranks import spawn

from shardyard.workers.trainer.determinism import compute_the_same_bits

EXPECTED = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


@pytest.fixture
def restored() -> Iterator[None]:
    fill, benchmark = torch.utils.deterministic.fill_uninitialized_memory, torch.backends.cudnn.benchmark
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = fill
        torch.backends.cudnn.benchmark = benchmark


@pytest.mark.usefixtures("restored")
def test_what_the_operator_set_wins() -> None:
    env = {"NCCL_ALGO": "Tree", "NCCL_PROTO": ""}
    compute_the_same_bits(env)
    assert env == {**EXPECTED, "NCCL_ALGO": "Tree"}
    assert torch.are_deterministic_algorithms_enabled()


def _trained(rank: int, world: int, port: int, folder: str, deterministic: bool) -> Any:
    from shardyard.workers.messages.rendezvous import RankAssignment
    from shardyard.workers.spec import Run
    from shardyard.workers.trainer.assemble import train
    from shardyard.workers.trainer.instruments import Instruments

    (Path(folder) / "text").write_bytes(b"etaoin shrdlu\n" * 500)
    data = {"source": "text", "files": [f"{folder}/text"], "seq_len": 16}
    spec = {"model": LLAMA, "data": data, "steps": 2, "global_batch": 2, "deterministic": deterministic}
    spec |= {"checkpoint": {"final": False}, "eval": {"batches": 1}}
    run = Run.model_validate({"job": "bits", "train": spec, "checkpoints": folder, "cache": folder})
    listener = socket.create_server(("127.0.0.1", 0))
    place: dict[str, Any] = {"master_host": "127.0.0.1", "master_port": listener.getsockname()[1]}
    coords = RankAssignment(0, 1, 0, **place, master_fd=listener.detach(), timeout_s=30.0)
    steps: list[float] = []
    train(run, coords, lambda kind, event: steps.append(event["loss"]) if kind == "step" else None, Instruments())
    return steps, torch.are_deterministic_algorithms_enabled(), {name: os.environ.get(name) for name in EXPECTED}


def test_a_trainer_does_as_the_spec_says(tmp_path: Path) -> None:
    ((usual, off, _),) = spawn(_trained, 1, str(tmp_path), False)
    ((steps, on, env),) = spawn(_trained, 1, str(tmp_path), True)
    assert not off and on
    assert env == EXPECTED
    assert steps == usual and len(steps) == 2
