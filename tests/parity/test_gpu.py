"""On GPUs: the same curves as one process on the CPU. `make gpu-check` runs them where there is one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from harness.models import LLAMA
from harness.ranks import group, spawn, train

from shardyard.workers.trainer.flight_recorder import collectives
from shardyard.workers.trainer.recorded_profile import begun

pytestmark = pytest.mark.gpu

Make = Callable[..., Any]

ALONE = [("fp64", 1e-10), ("fp32", 1e-4), ("bf16", 0.02), ("fp16", 0.02)]
LAYOUTS: list[dict[str, Any]] = [
    {"data": 2},
    {"data": 2, "zero": 1},
    {"data": 2, "zero": 2},
    {"data": 2, "zero": 3},
    {"tensor": 2},
    {"pipeline": 2},
    {"pipeline": 2, "schedule": "zbv"},
    {"data": 2, "tensor": 2, "zero": 1},
    {"data": 2, "tensor": 2, "pipeline": 2, "zero": 3},
    {"data": 2, "pipeline": 2, "zero": 1},
    {"data": 2, "pipeline": 2, "schedule": "interleaved-zb", "zero": 2},
]


def _needs(devices: int) -> None:
    if torch.cuda.device_count() < devices:
        pytest.skip(f"needs {devices} CUDA devices, this machine has {torch.cuda.device_count()}")


@pytest.mark.parametrize(("precision", "bound"), ALONE)
def test_one_gpu_follows_the_cpu(precision: str, bound: float, root: Path, make_spec: Make, one_process: Make) -> None:
    _needs(1)
    sgd = {"name": "sgd", "lr": 0.1}
    found = train(make_spec({}, precision=precision, optimizer=sgd), root, device="cuda")
    exact = precision if precision == "fp64" else "fp32"
    np.testing.assert_allclose(
        found["losses"], one_process(make_spec({}, precision=exact, optimizer=sgd))["losses"], rtol=bound
    )


@pytest.mark.parametrize("counts", [[300, 0, 500, 200], [0, 0, 0, 1000], [200, 100, 0, 0]], ids=str)
def test_grouped_products_of_experts_equal_the_loop(counts: list[int]) -> None:
    """With experts that have no row, and rows that have no expert. Memory that was used before must not show through."""
    from shardyard.workers.models.experts import Experts, Weights, by_groups, by_loop

    _needs(1)
    torch.manual_seed(0)
    layer = Experts(4, 128, 256)
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, device="cuda", dtype=torch.bfloat16) / 16
    x, each = torch.randn(1000, 128, device="cuda", dtype=torch.bfloat16), torch.tensor(counts, device="cuda")
    found = []
    for compute in (by_loop, by_groups):
        dirty = torch.full((8 << 20,), float("nan"), device="cuda")  # what the allocator hands out next
        del dirty
        layer.zero_grad()
        rows = x.clone().requires_grad_()
        out = compute(rows, each, Weights(layer.gate, layer.up, layer.down))
        out.float().sin().sum().backward()
        found.append([out, rows.grad, *(p.grad.clone() for p in layer.parameters())])
    for loop, ours in zip(*found, strict=True):
        assert (ours.float() - loop.float()).norm() <= 0.02 * loop.float().norm()


FP8: list[dict[str, Any]] = [
    {},
    {"compile": True},
    {"recompute": "selective"},
    {"layout": {"data": 2, "zero": 2}},
    {"layout": {"data": 2, "zero": 3}},
    {"layout": {"pipeline": 2}},
]


@pytest.mark.parametrize("changes", FP8, ids=str)
def test_fp8_follows_the_cpu(changes: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    pytest.importorskip("torchao")
    layout = changes.get("layout", {})
    _needs(layout.get("data", 1) * layout.get("pipeline", 1))
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs compute capability 8.9")
    sgd = {"name": "sgd", "lr": 0.1}
    found = train(make_spec(**{"layout": {}, "precision": "fp8", "optimizer": sgd, **changes}), root, device="cuda")
    exact = one_process(make_spec({}, precision="fp32", optimizer=sgd))
    np.testing.assert_allclose(found["losses"], exact["losses"], rtol=0.02)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layouts_over_nccl_equal_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    _needs(layout.get("data", 1) * layout.get("tensor", 1) * layout.get("pipeline", 1))
    spec = make_spec(layout)
    np.testing.assert_allclose(train(spec, root, device="cuda")["losses"], one_process(spec)["losses"], rtol=1e-10)


@pytest.mark.parametrize("layout", [{"tensor": 2}, {"tensor": 2, "sequence": False}, {"tensor": 4}], ids=str)
def test_chunks_over_nccl_equal_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    """Messages of chunks run on the group's stream beside the products."""
    _needs(layout["tensor"])
    spec = make_spec(layout, overlap={"tensor_chunks": 3}, model={**LLAMA, "kv_heads": 4})
    np.testing.assert_allclose(train(spec, root, device="cuda")["losses"], one_process(spec)["losses"], rtol=1e-10)


def test_a_gpu_saves_the_state_of_the_step_while_it_trains_on(root: Path, make_spec: Make) -> None:
    """The copy to the host runs beside the next step: were it torn, what resumes from it would follow another curve."""
    _needs(1)
    spec = make_spec({}, precision="fp32", checkpoint={"every": 1, "keep": 9, "final": False})
    whole = train(spec, root, "saved-on-gpu", device="cuda")
    path = root / "checkpoints" / "saved-on-gpu" / "step-00000002"
    resumed = train(spec, root, "resumed-on-gpu", resume=path, device="cuda")
    np.testing.assert_allclose(resumed["losses"], whole["losses"][2:], rtol=1e-5)


def test_nccls_flight_recorder_says_what_the_device_has_not_done() -> None:
    """The host has enqueued the second sum, and the device still multiplies."""
    _needs(1)
    device = torch.device("cuda", 0)
    dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=device)
    try:
        matrix, sums = torch.ones(8192, 8192, device=device), torch.ones(4, device=device)
        dist.all_reduce(sums)
        torch.cuda.synchronize()
        for _ in range(50):
            matrix = matrix @ matrix
        dist.all_reduce(sums)
        (pending,) = [record for record in collectives() if record.nccl]
        torch.cuda.synchronize()
        (done,) = [record for record in collectives() if record.nccl]
    finally:
        dist.destroy_process_group()
    assert (pending.group, pending.entered, pending.op, pending.size) == ("world", 2, "all_reduce", "4 × Float")
    assert (done.entered, done.op) == (2, "")


def test_groups_are_split_from_the_worlds_communicator() -> None:
    _needs(4)
    assert spawn(_splits, 4) == [(2, "cuda:nccl", 3.0)] * 4


def _splits(rank: int, world: int, port: int) -> tuple[int, str, float]:
    """Splits of the world's communicator, the backend of a group that came of it, and a sum over that group."""

    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh

    device = group(rank, world, port, "cuda")
    mesh = make_mesh(Layout(data=2, tensor=2), device)
    number = torch.tensor([1.0 + mesh.index("tensor")], device=device)
    dist.all_reduce(number, group=mesh.group("tensor"))
    assert dist.group.WORLD is not None
    splits = dist.group.WORLD._get_backend(device).comm_split_count()  # type: ignore[attr-defined]
    return splits, str(dist.get_backend(mesh.group("tensor"))), number.item()


def test_neighbours_in_a_pipeline_send_over_communicators_of_two() -> None:
    """In each of the three splits one rank is alone. Each receives the number of the rank before it, and sends its own."""
    _needs(3)
    assert spawn(_sent_on, 3) == [(4, 2.0, 2), (4, 0.0, 2), (4, 1.0, 2)]


def _sent_on(rank: int, world: int, port: int) -> tuple[int, float, int]:
    """Splits of the world's communicator, what arrived, and the pairs of this rank."""
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.process_groups import in_pairs

    device = group(rank, world, port, "cuda")
    mesh = make_mesh(Layout(pipeline=world, schedule="interleaved"), device)
    mine, theirs = torch.full((4,), float(rank), device=device), torch.empty(4, device=device)
    messages = [
        dist.P2POp(dist.isend, mine, (rank + 1) % world, mesh.group("pipeline")),
        dist.P2POp(dist.irecv, theirs, (rank - 1) % world, mesh.group("pipeline")),
    ]
    if rank == world - 1:  # the first message of a pair waits for its other side, and not all may wait in a circle
        messages.reverse()
    for work in [work for one in in_pairs(messages, mesh.pairs) for work in dist.batch_isend_irecv([one])]:
        work.wait()
    assert dist.group.WORLD is not None
    splits = dist.group.WORLD._get_backend(device).comm_split_count()  # type: ignore[attr-defined]
    return splits, theirs[0].item(), len(mesh.pairs)


def test_a_profile_of_memory_has_the_stacks_of_allocations(tmp_path: Path) -> None:
    _needs(1)
    device = torch.device("cuda", 0)
    recording = begun("memory", device)
    kept = torch.empty(1 << 20, device=device)
    recording.end()
    recording.write(str(tmp_path / "memory.pickle"))
    del kept
    assert Path(__file__).name.encode() in (tmp_path / "memory.pickle").read_bytes()
