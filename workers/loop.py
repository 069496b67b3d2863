"""The training loop, as it reads in a textbook; every layout has done its work before it starts."""

import hashlib
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..strategies.clip import scale_gradients, sum_over_ranks
from ..strategies.context import share
from ..strategies.mesh import REPLICA, make_mesh
from ..strategies.precision import LossScale
from . import checkpoint
from .build import Built, build
from .coords import Coords
from .groups import formed
from .models.flops import flops_per_token
from .optimizer import learning_rate, optimizer_pieces, set_updates_done, updates_done
from .probe import Probe
from .rates import MFU_FORMULA, Rates, peak_flops
from .spec import Run
from .words import in_words

Tell = Callable[[str, dict[str, Any]], None]
Stop = Callable[[], bool]


class Diverged(ArithmeticError):
    """The loss is no longer a finite number; lower optimizer.lr, add schedule.warmup, or look at the data."""


def train(run: Run, coords: Coords, tell: Tell, stop: Stop) -> None:
    """Train one rank of a gang, from forming its groups to its last event."""
    with formed(coords) as device:
        train_on(run, device, _aloud(tell), stop)


def _aloud(tell: Tell) -> Tell:
    """Also say what is rare in the rank's log."""

    def told(kind: str, data: dict[str, Any]) -> None:
        line = in_words(kind, data) if kind != "step" else None
        if line is not None:
            print(line, flush=True)  # noqa: T201  (a trainer's standard output is its log)
        tell(kind, data)

    return told


def train_on(run: Run, device: torch.device, tell: Tell, stop: Stop) -> None:
    """Train one rank on the running process group."""
    Loop(build(run, make_mesh(run.train.layout, device)), tell, stop).run()


class Loop:
    """One rank's run over the steps. Rank 0 tells what is true of the job; the others tell their step times."""

    def __init__(self, built: Built, tell: Tell, stop: Stop) -> None:
        self.built, self.tell, self.stop = built, tell, stop
        self.spec = built.run.train
        self.leads = torch.distributed.get_rank() == 0
        self.step_tokens = self.spec.global_batch * self.spec.data.seq_len
        self.rates = _rates(built)
        self.first_loss: float | None = None
        self.last_loss: float | None = None
        self.validation_loss: float | None = None
        self.newest: Path | None = None
        self.started = time.monotonic()
        self.first_step_s: float | None = None
        self.trained_s = 0.0

    def run(self) -> None:
        """All steps that are left, then the summary. Returns early when `stop()` says so."""
        self._tell_plan()
        first = self._restore() + 1
        if first > self.spec.steps:
            raise checkpoint.CheckpointError(
                f"the checkpoint is of step {first - 1}: train.steps {self.spec.steps} leaves nothing to do; raise it."
            )
        for step in range(first, self.spec.steps + 1):
            if self.stop():
                self.built.parallel.data.settle()
                return
            self._train_step(step)
            if self._due(self.spec.eval.every, step) or step == self.spec.steps:
                self._validate(step)
            if self._due(self.spec.checkpoint.every, step) or (step == self.spec.steps and self.spec.checkpoint.final):
                self._save(step)
        self._tell_summary(self.spec.steps - first + 1)

    def _train_step(self, step: int) -> None:
        began = time.monotonic()
        torch.manual_seed(_step_seed(self.spec.seed, step, self.built.mesh.index(REPLICA)))
        lr = self._set_learning_rate(step)
        probe = Probe(self.built) if self.spec.probe.due(step) else None
        with probe.computing() if probe else nullcontext():
            batch = self._batch(step)
            with probe.running() if probe else nullcontext():
                loss_share = self.built.parallel.runner.train(*batch)
            self.built.parallel.data.reduce()
        loss, norm, skipped, scale = self._finish_gradients(loss_share)
        if not skipped:
            self.built.optimizer.step()
        with probe.moving() if probe else nullcontext():
            self.built.parallel.data.publish()
            if probe:
                self.built.parallel.data.settle()
        seconds = time.monotonic() - began
        self.trained_s += seconds
        if self.first_step_s is None:
            self.first_loss, self.first_step_s = loss, time.monotonic() - self.started
        self.last_loss = loss
        record: dict[str, Any] = {"step": step, "step_s": seconds}
        if self.leads:
            record |= {"loss": loss, "lr": lr, "grad_norm": norm, "loss_scale": scale, "skipped": skipped}
            record |= {"tokens": step * self.step_tokens, **self.rates.of(self.step_tokens, seconds)}
        self.tell("step", record)
        if probe:
            self._tell_first("probe", {"step": step, **probe.record()})

    def _set_learning_rate(self, step: int) -> float:
        lr = learning_rate(step, self.spec.steps, self.spec.optimizer.lr, self.spec.schedule)
        for group in self.built.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def _batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._share(self.built.tokens.batch(step - 1, self._rows()))

    def _share(self, pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """This context rank's positions of inputs and targets, on its device."""
        inputs, targets = (share(tokens, self.built.mesh).to(self.built.mesh.device) for tokens in pair)
        return inputs, targets

    def _rows(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """This data rank's rows of the global batch, micro-batch by micro-batch: row = (micro-batch · D + data rank) · size + i."""
        batch = self.built.batch
        rows = np.arange(batch.global_batch).reshape(batch.microbatches, batch.data, batch.micro_batch)
        return rows[:, self.built.mesh.index("data")].reshape(-1)

    def _finish_gradients(self, loss_share: torch.Tensor) -> tuple[float, float | None, bool, float | None]:
        """Global loss and gradient norm, unscaled and clipped gradients, and whether fp16 overflowed."""
        pieces, mesh, scale = self.built.parallel.data.pieces, self.built.mesh, self.built.loss.scale
        counts = self.built.parallel.runner.last and mesh.index("tensor") == 0
        factor = self.built.loss.factor
        loss, squares = sum_over_ranks(pieces, loss_share, counts, mesh)
        loss, norm = loss / factor, math.sqrt(squares) / factor if math.isfinite(squares) else math.inf
        skipped = _overflowed(scale, squares)
        if not skipped:
            if not math.isfinite(loss) or not math.isfinite(norm):
                raise Diverged(
                    f"loss {loss}, gradient norm {norm}: lower optimizer.lr, add schedule.warmup, or look at the data"
                )
            limit = self.spec.optimizer.clip_norm
            shrink = 1.0 if limit is None or norm <= limit else limit / norm
            scale_gradients(pieces, shrink / factor)
        return loss, norm if math.isfinite(norm) else None, skipped, None if scale is None else factor

    def _validate(self, step: int) -> None:
        """The loss over the first `eval.batches` global batches of the validation split, in order."""
        tokens, mesh = self.built.tokens, self.built.mesh
        self.built.parallel.data.settle()
        batches = min(self.spec.eval.batches, max(1, tokens.validation_windows // self.spec.global_batch))
        total = torch.zeros((), dtype=torch.float64, device=mesh.device)
        self.built.parallel.tally.clear()
        for number in range(batches):
            total += self.built.parallel.runner.validate(*self._share(tokens.validation(number, self._rows())))
        self.built.parallel.data.after_validation()
        counts = self.built.parallel.runner.last and mesh.index("tensor") == 0
        loss, _ = sum_over_ranks([], total, counts, mesh)
        self.validation_loss = loss / batches / self.built.loss.factor
        routing = self.built.parallel.tally.means()
        self._tell_first(
            "eval",
            {
                "step": step,
                "loss": self.validation_loss,
                "unigram_loss": tokens.unigram_loss,
                "tokens": batches * self.step_tokens,
                **routing,
            },
        )

    def _all_pieces(self) -> list[Any]:
        pieces = self.built.parallel.data.pieces
        return [*pieces, *optimizer_pieces(pieces, self.built.optimizer)]

    def _save(self, step: int) -> None:
        scale = self.built.loss.scale
        training = {
            "step": step,
            "updates": updates_done(self.built.optimizer),
            "loss_scale": None if scale is None else scale.state(),
            "layout": str(self.spec.layout),
            "model": None if self.built.architecture is None else self.built.architecture.model_dump(),
            "tokenizer": self.spec.data.tokenizer,
        }
        saved = checkpoint.save(self.built.run.checkpoints, step, self._all_pieces(), training, self.built.mesh)
        self.newest = saved.path
        if self.leads:
            checkpoint.prune(self.built.run.checkpoints, self.spec.checkpoint.keep)
        self._tell_first(
            "checkpoint", {"step": step, "path": str(saved.path), "bytes": saved.bytes, "seconds": saved.seconds}
        )

    def _restore(self) -> int:
        """Load the job's own newest checkpoint, else the one it was told to resume from; returns the step it is of (0: none)."""
        own = checkpoint.complete(self.built.run.checkpoints)
        path = own[0] if own else self.built.run.resume
        if path is None:
            return 0
        training = checkpoint.load(path, self._all_pieces())
        self.built.parallel.data.publish()
        set_updates_done(self.built.optimizer, training["updates"])
        if self.built.loss.scale is not None and training["loss_scale"]:
            self.built.loss.scale.restore(training["loss_scale"])
        return int(training["step"])

    def _tell_plan(self) -> None:
        run, tokens = self.built.run, self.built.tokens
        self._tell_first(
            "plan",
            {
                "layout": str(self.spec.layout),
                "world_size": self.spec.layout.world_size,
                "parameters": self.built.parameters,
                "batch": str(self.built.batch),
                "tokens_per_step": self.step_tokens,
                "device": run.device,
                "train_tokens": tokens.train_tokens,
                "validation_tokens": tokens.validation_tokens,
                "unigram_loss": tokens.unigram_loss,
                **self.built.parallel.runner.plan(),
            },
        )

    def _tell_summary(self, steps: int) -> None:
        self._tell_first(
            "summary",
            {
                "first_loss": self.first_loss,
                "last_loss": self.last_loss,
                "validation_loss": self.validation_loss,
                "unigram_loss": self.built.tokens.unigram_loss,
                "steps": steps,
                "tokens": steps * self.step_tokens,
                **self.rates.of(steps * self.step_tokens, self.trained_s),
                "mfu_formula": MFU_FORMULA,
                "time_to_first_step_s": self.first_step_s,
                "checkpoint": None if self.newest is None else str(self.newest),
            },
        )

    def _tell_first(self, kind: str, data: dict[str, Any]) -> None:
        if self.leads:
            self.tell(kind, data)

    @staticmethod
    def _due(every: int | None, step: int) -> bool:
        return every is not None and step % every == 0


def _rates(built: Built) -> Rates:
    """The rates of this run: on a CPU and for a module of the user's own without MFU."""
    spec, device = built.run.train, built.mesh.device
    arch = built.architecture
    flops = None if arch is None else flops_per_token(arch, spec.data.seq_len)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return Rates(spec.layout.world_size, flops, peak_flops(name, spec.precision))


def _overflowed(scale: LossScale | None, squares: float) -> bool:
    """Whether fp16 gradients overflowed, in which case the step is skipped; keeps the loss scale up to date."""
    if scale is None:
        return False
    overflow = not math.isfinite(squares)
    scale.update(overflow)
    return overflow


def _step_seed(seed: int, step: int, replica: int) -> int:
    """Randomness within a step (dropout) is a function of seed, step and replica, so that a resumed run draws the same."""
    digest = hashlib.blake2b(f"{seed}/{step}/{replica}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
