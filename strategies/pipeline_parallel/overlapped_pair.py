"""DualPipeV's pair of a forward and a backward pass, overlapped: each hides the other's all-to-alls (2412.19437, section 3.2.1).

The schedule pairs the forward pass of one micro-batch with the backward pass of another one, through the two stages of a rank. Torch
runs them one after the other. Here they run by turns (`strategies/turns.py`): a pass that has started the dispatch or the combination
of its experts' rows hands over, and waits for it when it has its turn again. Each pass computes what it computes alone, so no bit
changes.

All ranks start the collectives of a group in one order. Ranks that share experts are replicas of the same stages and run the same
pairs. Where a pass hands over depends on its code alone: on its blocks, and on what they recompute, never on values or on time.

It adds no deadlock. A pair starts no message between stages. It waits for two, which torch's schedule has started before the pair,
and whose senders need nothing of it.

The loss comes after the pair: on CUDA a backward pass that has handed over holds autograd's thread of the device, so a forward pass
must not run one of its own.

Memory: of both passes at once, as after the forward pass of the plain order; in addition what both compute with for the moment.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.pipelining import schedules

from ..dispatch_mode import entered_modes, notes_kept
from ..expert_parallel import exchanges
from ..layout import Layout
from ..telemetry.current import current
from ..thread_device import use_device
from ..torch_version import tried
from ..turns import Kept, Turns
from .p2p_trace import wait_for

#: The name of the thread of backward passes.
THREAD: Final = "overlapped-backward"


class OverlappedPair:
    """Runs the pairs of torch's schedule object `schedule`, whose stages on this rank are `stages`, by `turns`."""

    def __init__(self, schedule: Any, stages: Sequence[Any], turns: Turns, device: torch.device) -> None:
        self._schedule, self._turns, self._random = schedule, turns, RandomState(device)
        self._stages = {stage.stage_index: stage for stage in stages}
        self._device = device
        self._pool: Executor | None = None
        self._kept: tuple[Kept, ...] = ()
        schedule.register_custom_function(schedules.OVERLAP_F_B, self._run)

    @contextmanager
    def thread(self, *kept: Kept) -> Iterator[None]:
        """Has the thread of the backward passes during a step; each pass has its own of what is `kept`."""
        threads = torch.get_num_threads()  # a new thread does not have the number that was set
        with ThreadPoolExecutor(1, THREAD, _begin, (threads, self._device)) as pool:
            self._pool, self._kept = pool, kept
            try:
                yield
            finally:
                self._pool, self._kept = None, ()

    def _run(self, action: Any, context: Any) -> None:
        """One pair. `action` and `context` are what torch gives to a custom function."""
        assert self._pool is not None, "pairs run inside `thread`"
        forward, backward = action.sub_actions
        outputs: list[Any] = []
        telemetry = current()
        kept: list[Kept] = [telemetry.tracer, telemetry.clock, telemetry.logged, self._random, *self._kept]
        inside = _as_on_this_thread(self._device)
        with notes_kept():
            self._turns.run(
                partial(self._forward, forward, context, outputs),
                partial(self._backward, backward, inside),
                kept,
                self._pool,
            )
        stage, number = self._stages[forward.stage_index], forward.microbatch_index
        (output,) = outputs
        self._schedule._maybe_compute_loss(stage, output, context.target_mbs, number)
        following = self._stages.get(stage.stage_index + 1)
        if following is not None:
            following.set_local_fwd_input(output, number)

    def _forward(self, action: Any, context: Any, outputs: list[Any]) -> None:
        """As `_PipelineScheduleRuntime` runs a forward pass, up to its loss."""
        stage, number = self._stages[action.stage_index], action.microbatch_index
        self._schedule._assert_unsharded(stage)
        if not stage.is_first and stage.stage_index - 1 not in self._stages:
            wait_for(self._schedule.fwd_recv_ops.pop((stage.stage_index, number)))
        given, named = context.arg_mbs[number], context.kwarg_mbs[number]
        outputs.append(stage.forward_one_chunk(number, given, named, save_forward_output=False))

    def _backward(self, action: Any, inside: Callable[[], AbstractContextManager[None]]) -> None:
        """As `_PipelineScheduleRuntime` runs a whole backward pass."""
        schedule, stage, number = self._schedule, self._stages[action.stage_index], action.microbatch_index
        with inside():
            schedule._assert_unsharded(stage)
            if not stage.is_last and stage.stage_index + 1 not in self._stages:
                wait_for(schedule.bwd_recv_ops.pop((stage.stage_index, number)))
            loss = schedule._maybe_get_loss(stage, number)
            schedule.backward_counter[stage.stage_index] += 1
            last = schedule.backward_counter[stage.stage_index] == schedule._n_microbatches
            stage.backward_one_chunk(number, loss=loss, full_backward=True, last_backward=last)
            before = self._stages.get(stage.stage_index - 1)
            if before is not None:
                before.set_local_bwd_input(stage.get_local_bwd_output(number), number)


def overlapped_pair(
    schedule: Any, stages: Sequence[Any], parts: Sequence[nn.Module], layout: Layout, device: torch.device
) -> OverlappedPair | None:
    """Let the pairs of `schedule` run by turns, where one hides something.

    None, and torch's own order, without pairs, without distributed experts in `parts`, or on a version of torch that was not tried.
    """
    found = exchanges(parts)
    if layout.schedule != "dualpipev" or not found or not tried():
        return None
    turns = Turns()
    for exchange in found:
        exchange.turns = turns
    return OverlappedPair(schedule, stages, turns, device)


class RandomState:
    """The random state of the host and of `device`. A pass that recomputes a block sets that of its forward pass meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module = None if device.type == "cpu" else torch.get_device_module(device)

    def capture(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        own = None if self._module is None else self._module.get_rng_state(self._device)
        return torch.get_rng_state(), own

    def restore(self, state: tuple[torch.Tensor, torch.Tensor | None]) -> None:
        host, own = state
        torch.set_rng_state(host)
        if self._module is not None:
            self._module.set_rng_state(own, self._device)


def _begin(threads: int, device: torch.device) -> None:
    torch.set_num_threads(threads)
    use_device(device)  # the context of a stream returns to the device that was current before


def _as_on_this_thread(device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """A context in which another thread has this one's dispatch modes and stream, which torch keeps per thread."""
    modes = entered_modes()
    stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    @contextmanager
    def there() -> Iterator[None]:
        with ExitStack() as stack:
            if stream is not None:
                stack.enter_context(torch.cuda.stream(stream))
            for mode in modes:
                stack.enter_context(mode)
            yield

    return there
