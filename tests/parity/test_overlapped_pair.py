"""DualPipeV's overlapped pair: the bits of the plain order, collectives in one order, and all-to-alls behind the other pass's computing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from harness.models import BIASED, MIXTURE
from harness.ranks import group, spawn

from shardyard.workers.spec import Run, TrainSpec

Make = Callable[..., Any]

#: A step has eight micro-batches, and so eleven pairs on each of two ranks of the pipeline.
EXPERTS = {"pipeline": 2, "schedule": "dualpipev", "data": 2, "expert": 2, "micro_batch": 1}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": (EXPERTS, {}),
    "full-zero1": ({**EXPERTS, "zero": 1}, {"recompute": "full"}),
    "selective-zero2": ({**EXPERTS, "zero": 2}, {"recompute": "selective", "precision": "bf16"}),
    "every2-zero3": ({**EXPERTS, "zero": 3}, {"recompute": "every-2"}),
    "biased-activations-zero1": ({**EXPERTS, "zero": 1}, {"model": BIASED, "offload": {"activations": True}}),
    "capacity-tensor2": ({**EXPERTS, "tensor": 2}, {"model": {**MIXTURE, "capacity_factor": 0.75}}),
    "ring2-full": ({**EXPERTS, "data": 1, "context": 2, "micro_batch": 2}, {"recompute": "full"}),
    "pipeline4-fp32": ({**EXPERTS, "pipeline": 4}, {"precision": "fp32", "model": {**MIXTURE, "layers": 8}}),
}


def run_of(name: str, root: Path, spec: Any) -> Run:
    train = TrainSpec.model_validate(spec)
    return Run(job=name, train=train, checkpoints=root / "checkpoints" / name, cache=root / "cache")


@contextmanager
def one_after_the_other(plain: bool) -> Iterator[None]:
    """Pipelines that are built inside run the passes of a pair in torch's own order, if `plain`."""
    from shardyard.strategies.pipeline_parallel import schedule

    given: Any = schedule.overlapped_pair
    if plain:
        setattr(schedule, "overlapped_pair", lambda *_: None)  # noqa: B010
    try:
        yield
    finally:
        setattr(schedule, "overlapped_pair", given)  # noqa: B010


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_as_one_pass_after_the_other(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = CASES[name]
    spec = make_spec(layout, **{"model": MIXTURE, "steps": 2, "eval": {"batches": 1}, "probe": {"every": 2}, **changes})
    run = run_of(name, root, spec)
    for overlapped, plain in spawn(both_ways, run.train.layout.world_size, run.model_dump_json()):
        assert overlapped.pop("turns") > 0 == plain.pop("turns")
        assert overlapped == plain


def both_ways(rank: int, world: int, port: int, orders: str) -> Any:
    """What this rank trains with overlapped pairs, and without."""
    run = Run.model_validate_json(orders)
    device = group(rank, world, port)
    return [trained(run, device, plain) for plain in (False, True)]


def trained(run: Run, device: Any, plain: bool) -> dict[str, Any]:
    """Losses, norms, probed traffic, the bits of all param shards and biases, and how often a pass has handed over."""
    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.turns import Turns
    from shardyard.workers.trainer.assemble import assemble
    from shardyard.workers.trainer.build import allocate
    from shardyard.workers.trainer.instruments import Instruments

    given, turns, events = Turns.yield_turn, [], []

    def yield_turn(self: Turns) -> None:
        turns.append(self.shared)
        given(self)

    setattr(Turns, "yield_turn", yield_turn)  # noqa: B010
    try:
        with one_after_the_other(plain):
            built = allocate(run, make_mesh(run.train.layout, device))
        assemble(built, lambda kind, data: events.append((kind, data)), Instruments()).run()
    finally:
        setattr(Turns, "yield_turn", given)  # noqa: B010
    steps = [data for kind, data in events if kind == "step"]
    kept = [*built.parallel.data.shards, *built.parallel.balance.shards]
    return {
        "turns": sum(turns),
        "losses": [data.get("loss") for data in steps],
        "norms": [data.get("grad_norm") for data in steps],
        "evaluations": [(data["loss"], data["balance_loss"]) for kind, data in events if kind == "eval"],
        "traffic": [by_collective(data["traffic"]) for kind, data in events if kind == "probe"],
        "shards": [(shard.name, shard.offset, shard.tensor.numpy().tobytes()) for shard in kept],
    }


def by_collective(traffic: Any) -> dict[str, tuple[float, float]]:
    """Calls and bytes. Not by axis: of the second mesh of a process torch names some groups as those of the first."""
    found: dict[str, tuple[float, float]] = {}
    for kinds in traffic.values():
        for kind, moved in kinds.items():
            calls, sent = found.get(kind, (0, 0.0))
            found[kind] = (calls + moved["calls"], sent + moved["bytes"])
    return found


def test_all_ranks_start_their_collectives_in_one_order(root: Path, make_spec: Make) -> None:
    run = run_of("order", root, make_spec(EXPERTS, model=MIXTURE, recompute="full"))
    found = spawn(started, 4, run.model_dump_json())
    for first, second in (found[:2], found[2:]):  # replicas of the same stages, which share their experts
        assert [(axis, operator) for axis, operator, _ in first] == [(axis, operator) for axis, operator, _ in second]
        exchanges = [(sizes, others) for (*_, sizes), (*_, others) in zip(first, second, strict=True)]
        split = [(sizes, others) for sizes, others in exchanges if sizes is not None]
        assert len(split) > 2 * 8 * 4 and len({str(one) for one in split}) > 8
        for (out, into), (their_out, their_into) in split:
            assert (out[1], into[1]) == (their_into[0], their_out[0])
            assert (out[0], their_out[1]) == (into[0], their_into[1])


def started(rank: int, world: int, port: int, orders: str) -> list[Any]:
    """For each collective of a step: axis, operator, and of an uneven all-to-all the rows out and in by rank."""
    from shardyard.strategies.dispatch_mode import DispatchMode, operator_name
    from shardyard.strategies.telemetry.comm_counter import group_of

    pipeline, axes, tokens = built_pipeline(rank, world, port, orders)
    found: list[Any] = []

    class Log(DispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.namespace == "c10d":
                name = operator_name(func)
                sizes = (list(args[4]), list(args[3])) if name.endswith("alltoall_base_") and args[4] else None
                axis = group_of(args).group_name
                found.append((axes.get(axis, axis), name, sizes))
            return func(*args, **(kwargs or {}))

    with Log():
        pipeline.train(tokens, tokens)
    return found


def built_pipeline(rank: int, world: int, port: int, orders: str, plain: bool = False) -> tuple[Any, Any, Any]:
    """A rank's pipeline, the names of its axes, and tokens [rows, seq] of a step that differ by replica."""
    import torch

    from shardyard.strategies.mesh import REPLICA, make_mesh
    from shardyard.strategies.telemetry.comm_counter import axes_of
    from shardyard.workers.trainer.build import build

    run = Run.model_validate_json(orders)
    mesh = make_mesh(run.train.layout, group(rank, world, port))
    with one_after_the_other(plain):
        pipeline = build(run, mesh).parallel.runner
    noise = torch.Generator().manual_seed(mesh.index(REPLICA))
    return pipeline, axes_of(mesh), torch.randint(0, 250, (8, 32), generator=noise)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_trace_shows_exchanges_behind_the_other_pass(recompute: str, root: Path, make_spec: Make) -> None:
    run = run_of(recompute, root, make_spec(EXPERTS, model=MIXTURE, recompute=recompute))
    for overlapped in spawn(traced, 4, run.model_dump_json(), False):
        passes, exchanges, waited = overlapped
        assert len(exchanges) > 2 * 11
        under_way = behind = 0
        for start, end in exchanges:
            (own,) = (stage for stage, *piece in passes if piece[0] < start < piece[1])
            inside = [piece for piece in passes if start < piece[1] and piece[2] < end]
            assert inside and own not in {stage for stage, *_ in inside}
            under_way, behind = under_way + end - start, behind + sum(piece[2] - piece[1] for piece in inside)
        assert 0 < behind < under_way > waited
    for passes, exchanges, waited in spawn(traced, 4, run.model_dump_json(), True):
        assert passes and waited and not exchanges


def traced(rank: int, world: int, port: int, orders: str, plain: bool) -> tuple[Any, Any, int]:
    """The turns of passes (stage, start, end), the exchanges under way (start, end), and the time of all waits for one.

    Of a step by a clock that counts how often it was read: what comes after what, however fast the machine is.
    """
    from shardyard.strategies.telemetry.current import Telemetry, installed
    from shardyard.strategies.telemetry.step_tracer import TRAINING

    class Ticks:
        def __init__(self) -> None:
            self._next = count()

        def now(self) -> int:
            return next(self._next)

        def seconds(self, start: int, end: int) -> int:
            return end - start

    pipeline, axes, tokens = built_pipeline(rank, world, port, orders, plain)
    telemetry = Telemetry()
    with installed(telemetry):
        telemetry.tracer.begin(Ticks(), axes)
        pipeline.train(tokens, tokens)
        recorded = telemetry.tracer.end()
    assert sum(recorded.sums.values()) == recorded.seconds
    passes = sorted((span.start, span.end, span.stage) for span in recorded.spans if span.stage is not None)
    assert all(one[1] <= other[0] for one, other in pairwise(passes))  # one at a time
    exchanges = [span for span in recorded.spans if span.name.startswith("all_to_all")]
    return (
        [(stage, start, end) for start, end, stage in passes],
        [(span.start, span.end) for span in exchanges if span.lane != TRAINING],
        sum(int(span.end - span.start) for span in exchanges if span.lane == TRAINING),
    )


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_expert_that_fails_ends_both_threads_with_the_cause(where: str, root: Path, make_spec: Make) -> None:
    run = run_of(where, root, make_spec(EXPERTS, model=MIXTURE))
    found = spawn(failed, 4, run.model_dump_json(), where)
    causes = [cause for cause, _ in found]
    # The expert fails in a rank's first pair. A rank that is not there yet loses its connection.
    assert any("ValueError: an expert failed" in cause for cause in causes), causes
    assert [threads for _, threads in found] == [[]] * 4


def failed(rank: int, world: int, port: int, orders: str, where: str) -> tuple[str, Sequence[str]]:
    """What a step has raised whose experts fail inside a pair, and the threads that it has left."""
    import threading
    import traceback

    from shardyard.strategies.expert_parallel import Mixture
    from shardyard.strategies.pipeline_parallel.overlapped_pair import THREAD

    pipeline, _, tokens = built_pipeline(rank, world, port, orders)
    for stage in pipeline.stages:
        for module in stage.submod.modules():
            if isinstance(module, Mixture):
                module.experts.register_forward_hook(_failing(module.exchange, where))
    try:
        pipeline.train(tokens, tokens)
    except Exception as error:
        cause = "".join(traceback.format_exception(error))
        return cause, [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD)]
    raise AssertionError("it did not fail")


def _failing(exchange: Any, where: str) -> Callable[..., None]:
    """A hook that fails in a pair, where another pass waits for its turn: in the forward pass, or in the backward pass."""

    def fail(*_: object) -> None:
        if exchange.turns.shared:
            raise ValueError("an expert failed")

    def hook(_: object, __: object, output: Any) -> None:
        if where == "forward":
            fail()
        else:
            output.register_hook(fail)

    return hook
