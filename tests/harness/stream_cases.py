"""What runs on the fake device under the race detector: small programs with and without a race, and the code that uses side streams.

Each program gets `ordered`: false leaves out what orders it.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from shardyard.workers.dry_run.fake_tensors import FakeStore, FakeTensorMode
from shardyard.workers.dry_run.race_detector import RaceDetector

CUDA = torch.device("cuda", 0)


@contextmanager
def detecting() -> Iterator[RaceDetector]:
    with FakeTensorMode(allow_non_fake_inputs=True), RaceDetector().watching() as detector:
        yield detector


@contextmanager
def of_two_ranks() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        yield
    finally:
        dist.destroy_process_group()


def warm_up() -> None:
    """Import what torch imports at first use, so that no forked child has to."""
    with of_two_ranks(), detecting():
        _ = torch.zeros(1, device=CUDA) + 1


def small(name: str, ordered: bool) -> None:
    """One of `PROGRAMS`."""
    with of_two_ranks(), detecting():
        PROGRAMS[name](ordered)


def read_on_another_stream(ordered: bool) -> None:
    x, side = torch.zeros(4, device=CUDA), torch.cuda.Stream()
    if ordered:
        side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _ = x + 1


def overwrite_what_another_stream_reads(ordered: bool) -> None:
    x, side = torch.zeros(4, device=CUDA), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _ = x + 1
        read = side.record_event()
    if ordered:
        torch.cuda.current_stream().wait_event(read)
    x.fill_(1)


def an_event_recorded_too_early(ordered: bool) -> None:
    x, side = torch.zeros(4, device=CUDA), torch.cuda.Stream()
    event = torch.cuda.Event()
    if not ordered:
        event.record()
    x.fill_(1)
    if ordered:
        event.record()
    side.wait_event(event)
    with torch.cuda.stream(side):
        _ = x + 1


def read_a_copy_on_the_host(ordered: bool) -> None:
    x, host = torch.zeros(4, device=CUDA), torch.empty(4)
    host.copy_(x, non_blocking=True)
    if ordered:
        torch.cuda.current_stream().synchronize()
    _ = host + 1


def overwrite_what_is_copied_to_the_device(ordered: bool) -> None:
    x, host = torch.empty(4, device=CUDA), torch.zeros(4)
    x.copy_(host, non_blocking=ordered is False)
    host.fill_(1)


def hand_out_memory_that_another_stream_reads(ordered: bool) -> None:
    x, side = torch.zeros(4, device=CUDA), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _ = x + 1
    if ordered:
        x.record_stream(side)
    del x
    torch.zeros(4, device=CUDA)


def hand_out_memory_before_the_other_stream_is_done(ordered: bool) -> None:
    x, side = torch.zeros(4, device=CUDA), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _ = x + 1
    if ordered:
        torch.cuda.current_stream().wait_stream(side)
    x.untyped_storage().resize_(0)
    torch.zeros(4, device=CUDA)


def read_before_a_collective_is_waited_for(ordered: bool) -> None:
    x = torch.zeros(4, device=CUDA)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    if ordered:
        work.wait()
    _ = x + 1


def overwrite_what_a_collective_sends(ordered: bool) -> None:
    mine, rows = torch.zeros(4, device=CUDA), torch.empty(8, device=CUDA)
    work = dist.all_gather_single(rows, mine, async_op=True)
    assert work is not None
    if ordered:
        work.wait()
    mine.fill_(1)


def overwrite_what_is_sent(ordered: bool) -> None:
    mine, theirs = torch.zeros(4, device=CUDA), torch.empty(4, device=CUDA)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, 1), dist.P2POp(dist.irecv, theirs, 1)])
    if ordered:
        for work in works:
            work.wait()
    mine.fill_(1)


def read_a_functional_collective(ordered: bool) -> None:
    x = torch.zeros(4, device=CUDA)
    assert dist.group.WORLD is not None
    total = torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name)
    if ordered:
        total = torch.ops._c10d_functional.wait_tensor(total)
    _ = total + 1


def read_what_a_thread_copies(ordered: bool) -> None:
    x, host, side = torch.zeros(4, device=CUDA), torch.empty(4), torch.cuda.Stream()
    ready = torch.cuda.current_stream().record_event()

    def copy() -> None:
        with torch.cuda.stream(side):
            side.wait_event(ready)
            host.copy_(x, non_blocking=True)
        side.synchronize()

    with ThreadPoolExecutor(1) as pool:
        copied = pool.submit(copy)
        while not copied.done():  # in time, but by luck: the detector does not see it
            pass
        if ordered:
            copied.result()
        x.fill_(1)
        _ = host + 1


PROGRAMS: dict[str, Callable[[bool], None]] = {
    program.__name__: program
    for program in (
        read_on_another_stream,
        overwrite_what_another_stream_reads,
        an_event_recorded_too_early,
        read_a_copy_on_the_host,
        overwrite_what_is_copied_to_the_device,
        hand_out_memory_that_another_stream_reads,
        hand_out_memory_before_the_other_stream_is_done,
        read_before_a_collective_is_waited_for,
        overwrite_what_a_collective_sends,
        overwrite_what_is_sent,
        read_a_functional_collective,
        read_what_a_thread_copies,
    )
}


def waits_of_the_host() -> None:
    """What needs no synchronisation: copies that block, and reads of values."""
    with detecting():
        x = torch.zeros(4, device=CUDA)
        host = x.cpu()
        _ = host + 1
        with torch.cuda.stream(torch.cuda.Stream()):
            _ = x + 1  # the host, which gives it to the stream, has seen `x`


def counted_waits() -> dict[str, int]:
    """What the host waits for → how many times, by a meter, in a program that waits in every way."""
    from shardyard.workers.dry_run.memory_meter import Meter

    with FakeTensorMode(allow_non_fake_inputs=True), Meter().metering() as meter:
        x, side, never = torch.zeros(4, device=CUDA), torch.cuda.Stream(), torch.cuda.Event()
        first = torch.cuda.current_stream().record_event()
        first.synchronize()
        first.synchronize()  # it is over
        never.synchronize()  # it was never recorded
        before = torch.cuda.current_stream().record_event()
        side.wait_stream(torch.cuda.current_stream())
        beside = side.record_event()
        x.tolist()
        before.synchronize()  # it is over: the host has read what came after it
        beside.synchronize()  # of another stream than the one that the host waited for
        after = torch.cuda.current_stream().record_event()
        x.copy_(torch.zeros(4))
        after.synchronize()  # the host has waited for the copy
        x.cpu()
        after.query()
        side.synchronize()
        torch.cuda.synchronize()
    counted: dict[str, int] = {}
    for (_, what), times in meter.syncs.items():
        counted[what] = counted.get(what, 0) + times
    return counted


def timed_events(share: float, steps: int) -> list[int]:
    """Timed events that the loop records in each step of one of two ranks, whose events cost `share` of a step."""
    from shardyard.strategies.telemetry.step_sampling import StepSampling
    from shardyard.workers.dry_run import fake_attention, fake_norms, fake_streams, one_step
    from shardyard.workers.spec import TrainSpec

    fake_attention.install()
    fake_norms.install()
    counted = [0]

    class Counted(fake_streams.Event):
        def __init__(self, *given: Any, enable_timing: bool = False, **more: Any) -> None:
            super().__init__(*given, **more)
            counted[0] += enable_timing

    _replace(torch.cuda, "Event", Counted)
    spec = {"model": {"preset": "nano", "layers": 1}, "data": {"seq_len": 32}, "precision": "bf16", "global_batch": 4}
    train = TrainSpec.model_validate({**spec, "layout": {"data": 2, "zero": 2}, "steps": steps, "probe": {"every": 5}})
    with of_two_ranks(), contextlib.ExitStack() as modes:
        mesh = one_step.make_mesh(train.layout, CUDA)
        modes.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        rank = one_step._Rank(train, 256, mesh, (None, 1))
        loop, found = rank._loop, []
        _replace(loop, "_sampling", StepSampling(sampled=True, first=1))
        measured, decide, votes = loop._sampling.measured, loop._sampling.decide, loop._sampling.votes
        # The machine's pace decides nothing here. Sums are fake: the other rank, which is not there, votes as this one does.
        _replace(loop._sampling, "measured", lambda cost_s, step_s: measured(share * step_s, step_s))
        _replace(loop._sampling, "decide", lambda _, ranks: decide([ranks * vote for vote in votes()], ranks))
        with rank._instruments.installed(CUDA):
            for step in range(1, steps + 1):
                rank._meter.begin_step(one_step._known(rank._parts))
                rank._log.begin_step()
                counted[0] = 0
                with rank._metered(), rank._meter.during("forward and backward"):
                    loop.train_step(step)
                found.append(counted[0])
    return found


def streams_of_timed_events() -> list[str]:
    """The streams on which a step of ZeRO++ records timed events. torch sends its messages within streams of their own."""
    from shardyard.workers.dry_run import fake_streams
    from shardyard.workers.dry_run.one_step import dry_run
    from shardyard.workers.spec import TrainSpec

    from .dry_run import SPEC

    found = set()

    class Timed(fake_streams.Event):
        def __init__(self, *given: Any, enable_timing: bool = False, **more: Any) -> None:
            super().__init__(*given, **more)
            self._timed = enable_timing

        def record(self, stream: fake_streams.Stream | None = None) -> None:
            super().record(stream)
            if self._timed:
                found.add((stream or torch.cuda.current_stream()).name)

    _replace(torch.cuda, "Event", Timed)
    layout = {"data": 2, "zero": 3, "zero_plus_plus": {"weights": "int8", "gradients": "int8"}}
    spec = {
        **SPEC,
        "model": {"preset": "nano", "layers": 1},
        "data": {"seq_len": 32},
        "layout": layout,
        "global_batch": 2,
    }
    dry_run(TrainSpec.model_validate(spec), 256)
    return sorted(found)


def snapshots(without: str) -> None:
    """Three steps with a snapshot of each; `without` what orders them."""
    from shardyard.workers.snapshot import shared_memory
    from shardyard.workers.trainer.callbacks import snapshotting
    from shardyard.workers.trainer.instruments import Instruments

    with detecting() as detector:
        shards, seal = _shards(), shared_memory.seal

        def sealed(*given: Any) -> None:
            detector.host_reads_all()
            seal(*given)

        _replace(shared_memory, "seal", sealed)
        _replace(torch.cuda, "cudart", _Runtime)
        _replace(torch.cuda, "device", contextlib.nullcontext)
        _leave_out(without)
        snapshots = snapshotting.Snapshots(shared_memory.allocate(), 1, shards, CUDA, Instruments())
        for step in range(1, 4):
            if without != "settle":
                snapshots.settle()
            for shard in shards:
                shard.tensor.add_(1)
            snapshots.after(step, 1.0, dict, lambda: None)
        snapshots.settle()


def checkpoints(without: str) -> None:
    """Three steps with a checkpoint of each, written by a thread; `without` what orders them."""
    import threading

    from shardyard.workers.checkpoint.staging_buffer import StagingBuffer

    with FakeTensorMode(allow_non_fake_inputs=True):
        shards = _shards()
    errors: list[Exception] = []
    with RaceDetector().watching():
        _leave_out(without)
        _replace(torch.cuda, "cudart", _Runtime)
        _replace(torch.cuda, "device", contextlib.nullcontext)
        buffer = StagingBuffer(shards, CUDA)

        def write() -> None:
            try:
                buffer.content()
            except Exception as error:
                errors.append(error)

        writer = None
        for _ in range(3):
            while writer is not None and writer.is_alive():
                pass  # it reads in time, but by luck: the detector does not see it
            if writer is not None and without != "join":
                writer.join()
            buffer.take()
            writer = threading.Thread(target=write)
            writer.start()
            if without != "settle":
                buffer.settle()
            for shard in shards:
                shard.tensor.add_(1)
        assert writer is not None
        writer.join()
    for error in errors:
        raise error


def offloaded_activations(without: str) -> None:
    """Forward and backward passes of five blocks whose activations go to the host; `without` what orders them.

    The last backward pass fetches what it does not use, before that memory is used again. `free`, `take` and `give`: without the wait
    for a copy in that method.
    """
    from torch import nn

    from shardyard.strategies.activation_memory import copy_lane, host_pool, offload

    if without in ("free", "take", "give"):
        owner = host_pool.HostPool if without == "give" else offload._Kept
        given, wait = getattr(owner, without), copy_lane.Done.wait_on_device

        def without_waiting(*arguments: Any) -> Any:
            _replace(copy_lane.Done, "wait_on_device", lambda _: None)
            try:
                return given(*arguments)
            finally:
                _replace(copy_lane.Done, "wait_on_device", wait)

        _replace(owner, without, without_waiting)
    with detecting():
        _leave_out(without)
        blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8, device=CUDA), nn.GELU()) for _ in range(5)))
        offload.offload_activations(blocks)
        for _ in range(2):
            blocks(torch.zeros(4, 8, device=CUDA)).sum().backward()
        loss = blocks(torch.zeros(4, 8, device=CUDA)).sum()
        torch.autograd.grad(loss, [*blocks[3].parameters()])
        del loss
        blocks(torch.zeros(4, 8, device=CUDA))


def offloaded_optimizer(without: str) -> int:
    """Three steps of an optimizer on the host, in five buckets, and the publishing of its values; `without` what orders them.

    Returns how many times the host has waited for an event, and raises if it has waited for a stream.
    """
    from shardyard.strategies.activation_memory import host_optimizer as module
    from shardyard.strategies.param_shard import ParamShard
    from shardyard.workers.dry_run.fake_streams import Event, Stream
    from shardyard.workers.spec import OptimizerSpec
    from shardyard.workers.trainer.optimizer import make_optimizer

    waits = 0

    def wait(event: Event) -> None:
        nonlocal waits
        waits += 1
        given(event)

    given = Event.synchronize
    with detecting():
        _replace(Event, "synchronize", wait)
        _replace(Stream, "synchronize", _refused)
        _leave_out(without)
        shape = (5, module.STRIDE)
        (shard,) = shards = [ParamShard("weight", shape, (0, 0), torch.zeros(shape, device=CUDA), frozenset())]
        spec = OptimizerSpec()
        optimizer = module.HostOptimizer(shards, 1.0, lambda some: make_optimizer(some, spec), 4 * module.STRIDE)
        for _ in range(3):
            shard.tensor.grad = torch.ones(shape, device=CUDA)
            optimizer.step()
            shard.tensor.grad = None
            _ = shard.tensor + 1
    return waits


def _refused(*_: Any) -> None:
    raise RuntimeError("The host waits for a whole stream.")


def reductions_in_last_passes(without: str) -> None:
    """Steps of an interleaved pipeline whose reduce-scatters are in transit during other passes; `without` waiting for them."""
    from shardyard.strategies.data_parallel import zero
    from shardyard.workers.dry_run.one_step import dry_run
    from shardyard.workers.spec import TrainSpec

    from .dry_run import SPEC

    start = zero.reduce_scatter

    def unwaited(rows: torch.Tensor, group: Any, into: torch.Tensor) -> Callable[[], torch.Tensor]:
        start(rows, group, into)
        return lambda: into

    if without == "wait":
        _replace(zero, "reduce_scatter", unwaited)
    layout = {"pipeline": 2, "schedule": "interleaved", "data": 2, "zero": 1, "micro_batch": 1}
    spec = {**SPEC, "layout": layout, "global_batch": 8, "overlap": {"bucket_mb": 0.05}}
    dry_run(TrainSpec.model_validate(spec), 256, races=True)


def replicas_of_offloaded_state() -> None:
    """Compare replicas whose masters are on the device and whose moments are on the host."""
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.replica_checksum import ReplicatedSlice, find_mismatch

    with of_two_ranks():
        mesh = make_mesh(Layout(data=2), CUDA)
        with FakeTensorMode(allow_non_fake_inputs=True):
            devices = {"weight": CUDA, "weight.exp_avg": torch.device("cpu")}
            # Of no axis: fake tensors have no values by which to choose those of one.
            slices = [
                ReplicatedSlice((name, "float32", (0, 0), (4, 4)), torch.zeros(4, 4, device=device), ())
                for name, device in devices.items()
            ]
            _replace(torch.Tensor, "item", lambda _: 0)  # "nothing differs"
            _replace(torch, "stack", _stack_of_one_device)
            assert find_mismatch(slices, mesh) is None


def restored_shares_of_offloaded_state() -> None:
    """Send restored slices to the other replica, of which one is on the device and one on the host. NCCL sends only the device's."""
    import torch.distributed as dist

    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.workers.trainer.snapshot_shares import SnapshotShares

    with of_two_ranks():
        mesh = make_mesh(Layout(data=2), CUDA)
        with FakeTensorMode(allow_non_fake_inputs=True):
            weight, _ = _shards()
            moment = weight.like("optimizer.exp_avg.weight", torch.zeros(4, 5))
            sent: list[str] = []
            _replace(dist, "broadcast", lambda tensor, *_, **__: sent.append(tensor.device.type))
            SnapshotShares([weight, moment], mesh).complete()
            assert sent == ["cuda", "cuda"]


def _stack_of_one_device(tensors: list[torch.Tensor]) -> torch.Tensor:
    """As CUDA's, which also refuses numbers of several devices. Those of fake tensors pass."""
    if len(devices := {str(tensor.device) for tensor in tensors}) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, but they are on {sorted(devices)}")
    return torch.cat([tensor[None] for tensor in tensors])


def _shards() -> list[Any]:
    from shardyard.strategies.param_shard import ParamShard

    return [
        ParamShard(f"weight{number}", (4, 5), (0, 0), torch.zeros(4, 5, device=CUDA), frozenset())
        for number in range(2)
    ]


def _leave_out(what: str) -> None:
    """Let a method of streams do nothing; other names are left out by the caller."""
    from shardyard.workers.dry_run.fake_streams import Event, Stream

    for owner in (Stream, Event):
        if what in vars(owner):
            setattr(owner, what, lambda *_: None)


def _replace(owner: Any, name: str, by: Any) -> None:
    """For the rest of this process."""
    setattr(owner, name, by)


class _Runtime:
    """CUDA's runtime: it registers memory of the host."""

    def cudaHostRegister(self, *_: Any) -> int:
        return 0

    def cudaHostUnregister(self, *_: Any) -> int:
        return 0
