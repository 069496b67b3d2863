"""The validation loss, over the same batches in the same order each time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from ...strategies.counted_targets import CountedTargets
from ...strategies.grad_clip import sum_over_ranks
from .batches import Batches
from .build import TrainerParts
from .callbacks.base import Callback
from .instruments import Instruments
from .reports import Reporter
from .step_record import StepRecord
from .train_state import TrainState


class Validation(Callback):
    """Validates every `eval.every` steps and after the last one."""

    def __init__(
        self, parts: TrainerParts, batches: Batches, reporter: Reporter, state: TrainState, instruments: Instruments
    ) -> None:
        self._parts, self._batches, self._reporter, self._state = parts, batches, reporter, state
        self._instruments = instruments
        self._validated = (
            False  # whether this process has validated a batch, for which blocks are compiled without gradients
        )

    def meets(self, step: int) -> bool:
        """Whether it validates after the step."""
        if not self._parts.tokens.validation_windows:  # a source of the user's own without a validation split
            return False
        every = self._parts.spec.eval.every
        return step == self._parts.spec.steps or (every is not None and step % every == 0)

    def after_step(self, record: StepRecord) -> None:
        if self.meets(record.step):
            with self._instruments.phase("validation", record.step):
                self._parts.parallel.data.settle()  # a module may compute with its weights when its mode changes
                with evaluating(self._parts.parallel.parts):
                    self._validate(record.step)

    def _validate(self, step: int) -> None:
        """The loss over the first `eval.batches` global batches of the validation split."""
        spec, mesh, parallel = self._parts.spec, self._parts.mesh, self._parts.parallel
        batches = min(spec.eval.batches, max(1, self._parts.tokens.validation_windows // spec.global_batch))
        total = torch.zeros((), dtype=torch.float64, device=mesh.device)
        tokens = self._parts.loss.tokens * batches
        counted = CountedTargets(self._parts.tokens.end is not None, self._parts.counts_loss, tokens)
        parallel.tally.clear()
        for number in range(batches):
            self._instruments.heartbeat.update("validation" if self._validated else "first validation", step)
            inputs, targets = self._batches.validation(number)
            counted.add(targets)
            total += parallel.runner.validate(inputs, targets)
            self._validated = True
        self._instruments.heartbeat.update("validation", step)
        parallel.data.after_validation()
        loss, _, *counts = sum_over_ranks([], total, self._parts.counts_loss, mesh, *counted.ballot())
        self._state.progress.validation_loss = loss / batches / self._parts.loss.factor / counted.share(counts)
        self._reporter.validation(step, batches, parallel.tally.means())


@contextmanager
def evaluating(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Inside, the modules are in evaluation mode, in which dropout drops nothing. Then each is in the mode in which it was."""
    before = {module: module.training for part in parts for module in part.modules()}
    for part in parts:
        part.eval()
    try:
        yield
    finally:
        for part in parts:
            _end_evaluation(part, before)
        for module, training in before.items():
            module.training = training


def _end_evaluation(module: nn.Module, before: Mapping[nn.Module, bool]) -> None:
    """Call a module's own method `train` if its mode has changed: it may undo what it did for the evaluation.

    Of a module whose parts were in different modes, then that of each part. Modules made for the evaluation have no mode before.
    """
    known = [one for one in module.modules() if one in before]
    modes = {before[one] for one in known}
    if all(one.training == before[one] for one in known):
        return
    if len(modes) == 1:
        module.train(*modes)
        return
    # Torch's own method does nothing but set the modes of all parts, which may be modules with a method of their own.
    if module in before and type(module).train is not nn.Module.train:
        module.train(before[module])
    for child in module.children():
        _end_evaluation(child, before)
