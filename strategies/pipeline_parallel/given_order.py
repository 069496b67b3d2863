"""A schedule of torch's that runs passes in a given order. Torch adds the messages.

A send follows its pass. Its receive is started at the same place of one order of all ranks' messages, so no two ranks wait for each
other. Torch's own schedules of several stages per rank are classes over the same runtime, which has no public name.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.pipelining import schedules

from ..torch_version import require
from .schedule_order import Order


def schedule_of(
    order: Order, stages: Sequence[Any], microbatches: int, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> Any:
    """A schedule object of torch's for `order`, the passes of every rank without messages; `stages` are this rank's.

    Gradients are summed over micro-batches. Raises `RuntimeError` on a version of torch that was not tried.
    """
    require("torch.distributed.pipelining.schedules._PipelineScheduleRuntime")
    runtime: Any = schedules._PipelineScheduleRuntime
    found = runtime(list(stages), microbatches, loss_fn=loss, scale_grads=False)
    listed = {
        rank: [schedules._Action.from_str(str(action)) for action in actions] for rank, actions in enumerate(order)
    }
    found._prepare_schedule_with_comms(listed)
    return found
