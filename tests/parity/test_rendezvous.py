"""Pipelines where a send completes only when it is received, as on NCCL: they equal one process, and what NCCL would block on blocks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness.layouts import DELAYED_LAYOUTS
from harness.models import GPT2
from harness.patience import PATIENCE_S
from harness.ranks import spawn, train, train_rank

from .test_layouts import assert_equal

Make = Callable[..., Any]

#: Seconds after which ranks that wait for each other count as waiting forever.
STUCK_S = 2.0

LAYOUTS: dict[str, dict[str, Any]] = {
    "1f1b2": {"pipeline": 2},
    "gpipe2": {"pipeline": 2, "schedule": "gpipe"},
    "interleaved2": {"pipeline": 2, "schedule": "interleaved"},
    "interleaved-zb2": {"pipeline": 2, "schedule": "interleaved-zb"},
    "zbv2": {"pipeline": 2, "schedule": "zbv"},
    "dualpipev2": {"pipeline": 2, "schedule": "dualpipev"},
    "zb-h1-2": {"pipeline": 2, "schedule": "zb-h1"},
    "zb-h2-4": {"pipeline": 4, "schedule": "zb-h2"},
    "zb-h1-2-data2-zero1": {"pipeline": 2, "schedule": "zb-h1", "data": 2, "zero": 1},
    "1f1b4": {"pipeline": 4},
    "1f1b2-data2-zero1": {"pipeline": 2, "data": 2, "zero": 1},
    "interleaved-zb2-data2": {"pipeline": 2, "schedule": "interleaved-zb", "data": 2},
    "interleaved2-data2-zero2": {"pipeline": 2, "schedule": "interleaved", "data": 2, "zero": 2},
    "zbv2-data2-zero3": {"pipeline": 2, "schedule": "zbv", "data": 2, "zero": 3},
    "ring2-interleaved2": {"context": 2, "pipeline": 2, "schedule": "interleaved"},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_pipeline_and_its_validation_equal_one_process(
    name: str, root: Path, make_spec: Make, one_process: Make
) -> None:
    spec = make_spec(LAYOUTS[name], steps=3)
    assert_equal(train(spec, root, f"rendezvous-{name}", work=train_with_rendezvous), one_process(spec), 1e-10)


@pytest.mark.parametrize("name", DELAYED_LAYOUTS)
def test_without_a_flush_it_equals_itself_on_gloo(name: str, root: Path, make_spec: Make) -> None:
    spec = make_spec(DELAYED_LAYOUTS[name], steps=3)
    found = train(spec, root, f"rendezvous-{name}", work=train_with_rendezvous)
    assert_equal(found, train(spec, root, f"gloo-{name}"), 1e-10)


def train_with_rendezvous(rank: int, world: int, port: int, orders: str) -> Any:
    from harness import ranks, rendezvous_gloo

    def group(*given: Any) -> Any:
        return rendezvous_gloo.group_of_rendezvous(*given[:3], PATIENCE_S / 2)

    setattr(ranks, "group", group)  # noqa: B010  (this process is a rank's own)
    return train_rank(rank, world, port, orders)


#: Layouts with groups of pairs, and what the spec says otherwise.
PAIRED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "1f1b4": ({"pipeline": 4}, {}),
    "interleaved3": ({"pipeline": 3, "schedule": "interleaved"}, {"model": {**GPT2, "layers": 6}, "global_batch": 12}),
    "zbv3-tied": ({"pipeline": 3, "schedule": "zbv"}, {"model": {**GPT2, "layers": 6, "tied": True}}),
    "zb-h1-4": ({"pipeline": 4, "schedule": "zb-h1"}, {}),
}


@pytest.mark.parametrize("name", PAIRED)
def test_with_groups_of_pairs_it_equals_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = PAIRED[name]
    spec = make_spec(layout, **{"steps": 3, **changes})
    assert_equal(train(spec, root, f"pairs-{name}", work=train_in_pairs), one_process(spec), 1e-10)


@pytest.mark.parametrize("name", ["2bw4", "pipedream4"])
@pytest.mark.parametrize("clip_norm", [1.0, None])
def test_without_a_flush_groups_of_pairs_change_nothing(
    name: str, clip_norm: float | None, root: Path, make_spec: Make
) -> None:
    spec = make_spec(DELAYED_LAYOUTS[name], steps=5, optimizer={"lr": 3e-3, "clip_norm": clip_norm})
    found = train(spec, root, f"pairs-{name}-{clip_norm}", work=train_in_pairs)
    assert_equal(found, train(spec, root, f"gloo-{name}-{clip_norm}"), 1e-10)


def train_in_pairs(rank: int, world: int, port: int, orders: str) -> Any:
    """As with NCCL's groups: those of the mesh, and with a rendezvous what is started over a group runs in order."""
    from shardyard.strategies import mesh
    from shardyard.strategies.pipeline_parallel import neighbours, schedule

    in_pairs, sizes = schedule.in_pairs, set()

    def seen(*given: Any) -> Any:
        operations = in_pairs(*given)
        sizes.update(one.group.size() for one in operations)
        return operations

    for module, name, instead in (
        (mesh, "runs_in_order", lambda: True),
        (schedule, "in_pairs", seen),
        (neighbours, "in_pairs", seen),
    ):
        setattr(module, name, instead)
    found = train_with_rendezvous(rank, world, port, orders)
    assert sizes == {2}
    return found


def test_a_message_leaves_when_it_is_received() -> None:
    assert spawn(crossing, 2, True) == [1.0, 0.0]


def test_two_ranks_that_both_send_first_never_end() -> None:
    with pytest.raises(RuntimeError, match="NeverReceived"):
        spawn(crossing, 2, False)


def crossing(rank: int, world: int, port: int, batched: bool) -> float:
    """Both ranks send their number to the other one, then receive."""
    import torch
    import torch.distributed as dist
    from harness.rendezvous_gloo import group_of_rendezvous

    group_of_rendezvous(rank, world, port, PATIENCE_S / 2 if batched else STUCK_S)
    mine, theirs = torch.full((3,), float(rank)), torch.empty(3)
    if batched:
        operations = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, theirs, 1 - rank)]
        works = dist.batch_isend_irecv(operations)
    else:
        works = [work for work in (dist.isend(mine, 1 - rank), dist.irecv(theirs, 1 - rank)) if work is not None]
    for work in works:
        work.wait()
    return theirs[0].item()


@pytest.mark.parametrize("rendezvous", [False, True])
def test_validation_in_rounds_ends(rendezvous: bool) -> None:
    assert spawn(validate, 2, "ForwardOnly", rendezvous) == [[], PASSED_ON]


def test_validation_by_single_messages_ends_only_where_they_are_buffered() -> None:
    assert spawn(validate, 2, "relayed", False) == [[], PASSED_ON]
    with pytest.raises(RuntimeError, match="NeverReceived"):
        spawn(validate, 2, "relayed", True)


#: Four micro-batches of one number, to which four stages add one each.
PASSED_ON = [4.0, 5.0, 6.0, 7.0]


def validate(rank: int, world: int, port: int, how: str, rendezvous: bool) -> list[float]:
    """The outputs of an interleaved pipeline that end on this rank."""
    import torch
    from harness.ranks import group
    from harness.rendezvous_gloo import group_of_rendezvous
    from torch import nn

    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.pipeline_parallel.forward_only import ForwardOnly

    class AddOne(nn.Module):
        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            return numbers + 1

    layout = Layout(pipeline=world, schedule="interleaved")
    limit_s = STUCK_S if how == "relayed" else PATIENCE_S / 2
    device = group_of_rendezvous(rank, world, port, limit_s) if rendezvous else group(rank, world, port)
    mesh, parts = make_mesh(layout, device), [AddOne() for _ in layout.stages_of(rank)]
    run = relayed(parts, mesh) if how == "relayed" else ForwardOnly(parts, mesh, 4).run
    found: list[float] = []
    run(torch.arange(4.0).view(4, 1, 1), lambda _, output: found.append(output.item()))
    return found


def relayed(parts: Sequence[Any], mesh: Any) -> Callable[..., None]:
    """Validation as it once was: a rank's stages run one after the other, and each message by itself."""
    import torch
    import torch.distributed as dist

    layout, rank = mesh.layout, mesh.index("pipeline")
    owners = {stage: rank for rank in range(layout.pipeline) for stage in layout.stages_of(rank)}

    def run(inputs: torch.Tensor, finish: Callable[[int, torch.Tensor], None]) -> None:
        given, sent, last = inputs.chunk(4), [], layout.stages - 1
        for stage, part in zip(layout.stages_of(rank), parts, strict=True):
            for number in range(4):
                arriving = torch.empty(1, 1, 1)
                if stage:
                    dist.recv(arriving, group=mesh.group("pipeline"), group_src=owners[stage - 1])
                output = part(arriving if stage else given[number])
                if stage == last:
                    finish(number, output)
                else:
                    sent.append(dist.isend(output, group=mesh.group("pipeline"), group_dst=owners[stage + 1]))
        for work in sent:
            assert work is not None
            work.wait()

    return run
