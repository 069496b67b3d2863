"""Where a pair of passes runs by turns, and what the second thread takes over of the first."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardyard.strategies import torch_version
from shardyard.strategies.dispatch_mode import entered_modes
from shardyard.strategies.expert_parallel import Exchange
from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.overlapped_pair import THREAD, RandomState, overlapped_pair
from shardyard.strategies.telemetry.comm_counter import Traffic
from shardyard.workers.dry_run.fake_tensors import FakeStore

CPU = torch.device("cpu")
DUALPIPEV = Layout(pipeline=2, schedule="dualpipev", data=2, expert=2)


class Message:
    """A message that a schedule has started."""

    def __init__(self, arrived: list[str], what: str) -> None:
        self._arrived, self._what = arrived, what

    def wait(self) -> None:
        self._arrived.append(self._what)


class Schedule:
    """The part of torch's schedule that a pair uses, which notes what it was given."""

    def __init__(self) -> None:
        self.custom: dict[Any, Callable[..., None]] = {}
        self.done: list[str] = []
        self.fwd_recv_ops: dict[Any, Any] = {(3, 5): [Message(self.done, "input of stage 3")]}
        self.bwd_recv_ops: dict[Any, Any] = {(0, 4): [Message(self.done, "gradient for stage 0")]}
        self.backward_counter = dict.fromkeys(range(4), 6)
        self._n_microbatches = 7

    def register_custom_function(self, kind: Any, function: Callable[..., None]) -> None:
        self.custom[kind] = function

    def _assert_unsharded(self, stage: Any) -> None:
        self.done.append(f"parameters of stage {stage.stage_index}")

    def _maybe_get_loss(self, stage: Any, number: int) -> str:
        return f"loss of {number}"

    def _maybe_compute_loss(self, stage: Any, output: Any, targets: Any, number: int) -> None:
        self.done.append(f"loss of {output}, {targets}, {number}")


class Stage:
    """A stage that runs what it is given in the place of a pass."""

    def __init__(self, index: int, run: Callable[[], None]) -> None:
        self.stage_index, self._run = index, run
        self.is_first, self.is_last = index == 0, index == 3
        self.given: list[Any] = []

    def forward_one_chunk(self, number: int, *args: Any, **kwargs: Any) -> str:
        self._run()
        self.given.append((number, args, kwargs))
        return f"output of {number}"

    def backward_one_chunk(self, number: int, **kwargs: Any) -> None:
        self._run()
        self.given.append((number, kwargs))

    def set_local_fwd_input(self, *given: Any) -> None:
        self.given.append(given)

    set_local_bwd_input = set_local_fwd_input

    def get_local_bwd_output(self, number: int) -> str:
        return f"gradient of {number}"


@pytest.fixture
def part() -> Iterator[Any]:
    """A model part with an exchange."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    part = nn.Sequential(nn.Linear(1, 1))
    part[0].exchange = Exchange(dist.group.WORLD)
    yield part
    dist.destroy_process_group()


def nothing() -> None: ...


def paired(
    part: Any, forward: Callable[[], None], backward: Callable[[], None], of: tuple[int, int] = (3, 0)
) -> tuple[Stage, Stage, Schedule, Callable[[], None]]:
    """The stages number `of` of a forward and a backward pass, their schedule, and a call that runs the pair once."""
    schedule, ahead, back = Schedule(), Stage(of[0], forward), Stage(of[1], backward)
    pair = overlapped_pair(schedule, [ahead, back], [part], DUALPIPEV, CPU)
    assert pair is not None
    (run,) = schedule.custom.values()
    actions = [
        SimpleNamespace(stage_index=stage.stage_index, microbatch_index=number)
        for stage, number in ((ahead, 5), (back, 4))
    ]
    context = SimpleNamespace(arg_mbs={5: ("inputs",)}, kwarg_mbs={5: {}}, target_mbs="targets")

    def once() -> None:
        with pair.thread():
            run(SimpleNamespace(sub_actions=actions), context)

    return ahead, back, schedule, once


def test_backward_passes_are_on_the_ranks_device(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new thread's is device 0, where the end of the stream's context would make a CUDA context."""
    used: list[tuple[str, torch.device]] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: used.append((threading.current_thread().name, device)))
    device = torch.device("cuda", 3)
    pair = overlapped_pair(Schedule(), [Stage(3, nothing), Stage(0, nothing)], [part], DUALPIPEV, device)
    assert pair is not None
    with pair.thread():
        assert pair._pool is not None
        pair._pool.submit(nothing).result()
    assert used == [(f"{THREAD}_0", device)]


def test_a_pair_does_what_torch_does_for_both_passes(part: Any) -> None:
    ahead, back, schedule, once = paired(part, nothing, nothing)
    once()
    assert ahead.given == [(5, (("inputs",), {}), {"save_forward_output": False})]
    assert back.given == [(4, {"loss": "loss of 4", "full_backward": True, "last_backward": True})]
    assert schedule.done == [
        "parameters of stage 3",
        "input of stage 3",
        "parameters of stage 0",
        "gradient for stage 0",
        "loss of output of 5, targets, 5",
    ]
    assert not schedule.fwd_recv_ops and not schedule.bwd_recv_ops


def test_neighbouring_stages_of_a_rank_pass_on_without_a_message(part: Any) -> None:
    ahead, back, schedule, once = paired(part, nothing, nothing, of=(1, 2))
    schedule.fwd_recv_ops[1, 5] = schedule.bwd_recv_ops[2, 4] = []
    once()
    assert back.given[1:] == [("output of 5", 5)] and ahead.given[1:] == [("gradient of 4", 4)]


def test_what_a_pass_raises_is_raised_and_the_thread_ends(part: Any) -> None:
    def fails() -> None:
        raise ValueError("an expert failed")

    def hands_over() -> None:
        part[0].exchange.turns.yield_turn()

    for forward, backward in ((fails, nothing), (nothing, fails), (hands_over, fails), (fails, hands_over)):
        *_, once = paired(part, forward, backward)
        with pytest.raises(ValueError, match="an expert failed"):
            once()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith(THREAD)]


def test_the_backward_pass_has_the_modes_of_the_step_and_its_number_of_threads(part: Any) -> None:
    found: list[Any] = []

    def looks() -> None:
        found.append((entered_modes(), torch.get_num_threads(), threading.current_thread().name))

    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with Traffic({}) as traffic:
            paired(part, looks, looks)[-1]()
    finally:
        torch.set_num_threads(before)
    assert found == [
        ([traffic], before + 1, threading.main_thread().name),
        ([traffic], before + 1, f"{THREAD}_0"),
    ]


def test_a_pass_that_recomputes_a_block_leaves_the_random_numbers_of_the_other_one(part: Any) -> None:
    exchange, drawn = part[0].exchange, []

    def forward() -> None:
        drawn.append(torch.rand(1).item())
        exchange.turns.yield_turn()
        drawn.append(torch.rand(1).item())
        exchange.turns.yield_turn()
        drawn.append(torch.rand(1).item())

    def backward() -> None:
        with torch.random.fork_rng():
            torch.manual_seed(1)
            exchange.turns.yield_turn()
            torch.rand(1)
            exchange.turns.yield_turn()

    torch.manual_seed(7)
    paired(part, forward, backward)[-1]()
    after = torch.rand(1).item()
    torch.manual_seed(7)
    assert [*drawn, after] == [torch.rand(1).item() for _ in range(4)]


def test_random_states_are_the_hosts() -> None:
    random = RandomState(CPU)
    state = random.capture()
    first = torch.rand(3)
    random.restore(state)
    assert torch.equal(torch.rand(3), first)


def test_elsewhere_torchs_own_order_stays(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dense, schedule = nn.Linear(1, 1), Schedule()
    zbv = DUALPIPEV.model_copy(update={"schedule": "zbv"})
    assert overlapped_pair(schedule, [], [dense], DUALPIPEV, CPU) is None
    assert overlapped_pair(schedule, [], [part], zbv, CPU) is None
    monkeypatch.setattr(torch_version, "TRIED", ("1.0.",))
    assert overlapped_pair(schedule, [], [part], DUALPIPEV, CPU) is None
    assert not schedule.custom and part[0].exchange.turns is None
