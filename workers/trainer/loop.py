"""The training loop, as it reads in a textbook; every layout has done its work before it starts."""

import hashlib
import math
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from ...strategies.context_parallel.apply import share
from ...strategies.grad_clip import clip_factor, scale_gradients, sum_over_ranks
from ...strategies.mesh import REPLICA, make_mesh
from ...strategies.precision import LossScale
from ...strategies.telemetry.device_clock import clock_of
from ...strategies.telemetry.step_tracer import SPANS
from ...strategies.telemetry.wait_time import ASIDE, OWN_TIME, Lap
from ..checkpoint.errors import CheckpointError
from ..checkpoint.restore import restore
from ..data.position import Position
from ..messages.event_buffer import plain
from ..messages.event_text import in_words
from ..messages.rendezvous import Coords
from ..messages.stop_request import Asked, Ending, agreed, votes
from ..models.flops import flops_per_token
from ..process_memory import Footprint
from ..snapshot.replication import Bell
from ..spec import Run
from ..storage.open_folder import folder_at
from .build import Built, build
from .callbacks import snapshotting
from .callbacks.checkpointing import Saving
from .callbacks.nan_attribution import Diverged, Overflowed, blame
from .callbacks.probe import Probe
from .callbacks.replica_check import Replicas
from .callbacks.snapshotting import Snapshots
from .callbacks.step_trace import Tracing
from .event_outbox import Recent, Tell
from .heartbeat import PULSE
from .optimizer import learning_rate, optimizer_pieces, set_updates_done, updates_done
from .process_groups import formed
from .slowdown import SLOWNESS
from .throughput import MFU_FORMULA, Rates, peak_flops

#: What a loop knows of its past and tells at its end.
_PAST = ("began_at", "first_loss", "last_losses", "validation_loss", "trained_s", "first_step_s")


def train(run: Run, coords: Coords, tell: Tell, asked: Asked) -> None:
    """Train one rank of a gang, from forming its groups to its last event."""
    with formed(coords) as device:
        bell = coords.bell if coords.copied else None
        train_on(run, device, _aloud(tell), asked, Memory(coords.slots, coords.restore, bell, coords.generation > 1))


def _aloud(tell: Tell) -> Tell:
    """Also say what is rare in the rank's log."""

    def told(kind: str, data: dict[str, Any]) -> None:
        line = in_words(kind, data) if kind != "step" else None
        if line is not None:
            print(line, flush=True)  # noqa: T201  (a trainer's standard output is its log)
        tell(kind, data)

    return told


@dataclass(frozen=True)
class Memory:
    """Where this rank's snapshots lie (`shared_memory.py`), the step of the one to go on from, the bell that has them copied, and whether
    the attempt has trained before.
    """

    slots: Sequence[int] = ()
    restore: int | None = None
    bell: int | None = None
    again: bool = False


def train_on(run: Run, device: torch.device, tell: Tell, asked: Asked, memory: Memory = Memory()) -> None:
    """Train one rank on the running process group."""
    Loop(build(run, make_mesh(run.train.layout, device)), tell, asked, memory).run()


class Loop:
    """One rank's run over the steps. Rank 0 tells what is true of the job; the others tell their step times."""

    def __init__(self, built: Built, tell: Tell, asked: Asked, memory: Memory = Memory()) -> None:
        self.built, self.asked, self.memory = built, asked, memory
        self.ending = Ending.NO  # as all ranks agreed
        self.recent = Recent(tell)
        self.tell = self.recent.tell
        self.spec = built.run.train
        self.leads = torch.distributed.get_rank() == 0
        self.step_tokens = self.spec.global_batch * self.spec.data.seq_len
        self.position = Position(built.tokens.order, self.spec.global_batch)
        self.rates = _rates(built)
        self.first_loss: float | None = None
        self.last_losses: list[float] = []  # of the steps whose mean the summary tells
        self.validation_loss: float | None = None
        self.own = False  # whether it goes on from a state of this very job
        self.began_at: int | None = None  # the first step of this attempt
        self.started = time.monotonic()
        self.first_step_s: float | None = None
        self.trained_s = 0.0
        OWN_TIME.clock, self.lap = clock_of(built.mesh.device), Lap(0.0, 0.0)
        pieces = self._all_pieces()
        bell = None if memory.bell is None else Bell(socket.socket(fileno=memory.bell))
        self.snapshots = Snapshots(memory.slots, self.spec.snapshot.every, pieces, built.mesh.device, bell)
        self.saving = Saving(built, pieces, self._tell_first)
        self.footprint = Footprint(partial(_allocated, built.mesh.device))
        self.replicas = Replicas(built, pieces, self.spec.replica_check.every)
        self.tracing = Tracing(built, tell)

    def run(self) -> None:
        """All steps that are left, then the summary; or those until all ranks have agreed to end."""
        try:
            with OWN_TIME.counting():
                self._run()
        finally:
            self.snapshots.settle()  # and with it what is withheld

    def _run(self) -> None:
        self._tell_plan()
        first = self._restore() + 1
        self.began_at = self.began_at or first
        if first > self.spec.steps and not self._has_trained:
            raise CheckpointError(
                f"the checkpoint is of step {first - 1}: train.steps {self.spec.steps} leaves nothing to do; raise it."
            )
        for step in range(first, self.spec.steps + 1):
            PULSE.beat("step" if step > first else "first step", step)
            self.tracing.before()
            seconds = self._train_step(step)
            self.tracing.after(step, ends=bool(self.ending))
            with ASIDE:
                self.replicas.after(step, seconds, self.saving.due(step) or bool(self.ending))
            if self._due(self.spec.eval.every, step) or step == self.spec.steps:
                with ASIDE:
                    self._validate(step)
            self.saving.after(step, lambda step=step: self._saved(step))  # type: ignore[misc]
            self.snapshots.after(step, seconds, lambda step=step: self._facts(step), self.recent.release)  # type: ignore[misc]
            if self.ending and step < self.spec.steps:
                self._leave(step)
                return
        self.saving.conclude(lambda: self._saved(self.spec.steps))
        self._tell_summary(self.spec.steps - self.began_at + 1)

    def _leave(self, step: int) -> None:
        """End before the last step; what was wished is told, so that it is not taken for the end of the work."""
        self.built.parallel.data.settle()
        if self.ending == Ending.SAVE:
            self.saving.leave(step, lambda: self._saved(step))
        self.saving.finish()
        self.tell("stopped", {"step": step})

    def _train_step(self, step: int) -> float:
        """One step; returns its seconds."""
        self.tracing.begin()
        began, asked = time.monotonic(), self.asked()
        torch.manual_seed(_step_seed(self.spec.seed, step, self.built.mesh.index(REPLICA)))
        lr = self._set_learning_rate(step)
        probe = Probe(self.built) if self.spec.probe.due(step) else None
        with probe.computing() if probe else nullcontext():
            with SPANS.within("data", "batch"):
                batch = self._batch(step)
            SLOWNESS.suffer()
            with probe.running() if probe else nullcontext():
                loss_share = self.built.parallel.runner.train(*batch)
            with SPANS.within("backward", "gradients"):
                self.built.parallel.data.reduce()
        # Before ranks meet: none begins its next snapshot while another's last one is not whole, or not copied.
        with SPANS.within("other", "snapshot"):
            self.snapshots.settle(copied=self.snapshots.due(step))
        loss, norm, skipped, scale = self._finish_gradients(step, loss_share, asked)
        with SPANS.within("other", "checkpoint"):
            self.saving.settle()
        if not skipped:
            with SPANS.within("optimizer", "update"):
                self.built.optimizer.step()
        with probe.moving() if probe else nullcontext(), SPANS.within("optimizer", "publish"):
            self.built.parallel.data.publish()
            if probe:
                self.built.parallel.data.settle()
        seconds = time.monotonic() - began
        self.tracing.end(step)
        self.trained_s += seconds
        if self.first_step_s is None:
            self.first_loss, self.first_step_s = loss, time.monotonic() - self.started
        self.last_losses = [*self.last_losses, loss][-averaged(self.spec.steps) :]
        own: dict[str, Any] = {"own_s": self.lap.own_s, "waited_s": self.lap.waited_s, "part": self.built.mesh.part}
        if (size := self.footprint.due()) is not None:
            own["allocated"] = size
        record: dict[str, Any] = {"step": step, "step_s": seconds, **own}
        if self.leads:
            record |= {"loss": loss, "lr": lr, "grad_norm": norm, "loss_scale": scale, "skipped": skipped}
            record |= {"tokens": self.position.tokens(step), **self.rates.of(self.step_tokens, seconds)}
        if self.snapshots.due(step):
            self.recent.withhold()
        self.tell("step", record)
        if probe:
            self._tell_first("probe", {"step": step, **probe.record(self.lap)})
        return seconds

    def _set_learning_rate(self, step: int) -> float:
        lr = learning_rate(step, self.spec.steps, self.spec.optimizer.lr, self.spec.schedule)
        for group in self.built.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def _batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._share(self.built.tokens.batch(self.position.first_sample(step), self._rows()))

    def _share(self, pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """This context rank's positions of inputs and targets, on its device."""
        inputs, targets = (share(tokens, self.built.mesh).to(self.built.mesh.device) for tokens in pair)
        return inputs, targets

    def _rows(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """This data rank's rows of the global batch, micro-batch by micro-batch: row = (micro-batch · D + data rank) · size + i."""
        batch = self.built.batch
        rows = np.arange(batch.global_batch).reshape(batch.microbatches, batch.data, batch.micro_batch)
        return rows[:, self.built.mesh.index("data")].reshape(-1)

    def _finish_gradients(
        self, step: int, loss_share: torch.Tensor, asked: Ending
    ) -> tuple[float, float | None, bool, float | None]:
        """Global loss and gradient norm, unscaled and clipped gradients, and whether fp16 overflowed; what all ranks wish."""
        pieces, mesh, scale = self.built.parallel.data.pieces, self.built.mesh, self.built.loss.scale
        counts = self.built.parallel.runner.last and mesh.index("tensor") == 0
        factor = self.built.loss.factor
        wishes = (*votes(asked), self.tracing.vote(step))
        with SPANS.within("optimizer", "norm"):
            loss, squares, stops, saves, traces = sum_over_ranks(pieces, loss_share, counts, mesh, *wishes)
        self.lap, self.ending = OWN_TIME.lap(), agreed(stops, saves)
        self.tracing.agree(traces, step)
        loss, norm = loss / factor, math.sqrt(squares) / factor if math.isfinite(squares) else math.inf
        skipped = _overflowed(scale, squares)
        self._refuse_to_diverge(step, loss, norm, skipped)
        if not skipped:
            with SPANS.within("optimizer", "clip"):
                scale_gradients(pieces, clip_factor(norm, self.spec.optimizer.clip_norm) / factor)
        return loss, norm if math.isfinite(norm) else None, skipped, None if scale is None else factor

    def _refuse_to_diverge(self, step: int, loss: float, norm: float, skipped: bool) -> None:
        """Raises `Diverged` where numbers are not finite; of fp16 only when skipped steps have not helped. All ranks alike."""
        scale = self.built.loss.scale
        passing = skipped and scale is not None and not scale.exhausted
        if passing or (math.isfinite(loss) and math.isfinite(norm)):
            return
        first = blame(self.built, partial(self._once_more, step))
        raise Overflowed(scale, first) if skipped and scale else Diverged(f"loss {loss}, gradient norm {norm}", first)

    def _once_more(self, step: int) -> None:
        """The passes of a step whose update was not made."""
        self.built.parallel.data.publish()
        torch.manual_seed(_step_seed(self.spec.seed, step, self.built.mesh.index(REPLICA)))
        self.built.parallel.runner.train(*self._batch(step))
        self.built.parallel.data.reduce()

    def _validate(self, step: int) -> None:
        """The loss over the first `eval.batches` global batches of the validation split, in order."""
        tokens, mesh = self.built.tokens, self.built.mesh
        self.built.parallel.data.settle()
        batches = min(self.spec.eval.batches, max(1, tokens.validation_windows // self.spec.global_batch))
        total = torch.zeros((), dtype=torch.float64, device=mesh.device)
        self.built.parallel.tally.clear()
        for number in range(batches):
            PULSE.beat("validation", step)
            total += self.built.parallel.runner.validate(*self._share(tokens.validation(number, self._rows())))
        self.built.parallel.data.after_validation()
        counts = self.built.parallel.runner.last and mesh.index("tensor") == 0
        loss, *_ = sum_over_ranks([], total, counts, mesh)
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

    def _training(self, step: int) -> dict[str, Any]:
        """What restores optimizer, loss scale and the position in the data, beside the pieces."""
        scale = self.built.loss.scale
        return {
            "step": step,
            "updates": updates_done(self.built.optimizer),
            "loss_scale": None if scale is None else scale.state(),
            "data": self.position.state(step),
        }

    def _saved(self, step: int) -> dict[str, Any]:
        """What a checkpoint holds beside the pieces: also what rank 0 told lately in this attempt, which may die on its way."""
        told = plain(self.recent.told()) if self.leads else []
        return self._training(step) | {"loop": self._past, "told": told, "told_in": self._attempt}

    @property
    def _attempt(self) -> list[Any]:
        return [self.built.run.job, self.built.run.attempt]

    @property
    def _has_trained(self) -> bool:
        """Whether this job has trained before and goes on from there: then all that is left after its last step is its end."""
        again = self.memory.again or self.memory.restore is not None or self.built.run.attempt > 1
        return self.own and again

    @property
    def _past(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _PAST}

    def _facts(self, step: int) -> dict[str, Any]:
        """A snapshot's JSON: the training state, this loop's own, and what rank 0 told lately."""
        told = self.recent.told() if self.leads else []
        state = {"training": self._training(step), "about": self.saving.about}
        return state | {"loop": self._past, "checkpoint": self.saving.newest, "told": told}

    def _restore(self) -> int:
        """The step after which this rank goes on; 0: from the start.

        From the snapshot that the gang has agreed on; else from the job's own newest whole checkpoint, or the one to resume from.
        """
        if self.memory.restore is not None:
            facts = snapshotting.restore(self.memory.slots, self.memory.restore, self._all_pieces())
            self._recall(facts["loop"])
            self.saving.newest = facts["checkpoint"]
            self.recent.tell_again(facts["told"])
            self.snapshots.copy(self.memory.restore)
            self._locate(facts["training"], own=True)
            return self._continue(facts["training"])
        run = self.built.run
        resume = None if run.resume is None else folder_at(run.resume)
        training = restore(folder_at(run.checkpoints), resume, self._all_pieces(), self.saving.warn, self._locate)
        if training is None:
            return 0
        same_attempt = training.get("told_in") == self._attempt
        if self.own and (same_attempt or training["step"] == self.spec.steps):
            self._recall(training.get("loop", {}))
        if self.leads and self.memory.again and same_attempt:
            self.recent.tell_again(training["told"])
        return self._continue(training)

    def _recall(self, own: Mapping[str, Any]) -> None:
        for name, value in own.items():
            setattr(self, name, value)

    def _locate(self, training: Mapping[str, Any], own: bool) -> None:
        """Find the samples with which to go on. Raises `Refusal` where the data are not those of this state, the job's own or another's."""
        self.own = own
        restart = self.spec.resume_data == "restart" and not own
        self.position.restore(training["step"], training["data"], restart)

    def _continue(self, training: dict[str, Any]) -> int:
        """The pieces have their values: let the rest follow."""
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
        PULSE.beat("end", self.spec.steps)
        self._tell_first(
            "summary",
            {
                "first_loss": self.first_loss,
                "last_loss": statistics.fmean(self.last_losses) if self.last_losses else None,
                "last_steps": len(self.last_losses),
                "validation_loss": self.validation_loss,
                "unigram_loss": self.built.tokens.unigram_loss,
                "steps": steps,
                "tokens": steps * self.step_tokens,
                **self.rates.of(steps * self.step_tokens, self.trained_s),
                "mfu_formula": MFU_FORMULA,
                "time_to_first_step_s": self.first_step_s,
                "checkpoint": self.saving.newest,
                "export": self.saving.exported,
            },
        )

    def _tell_first(self, kind: str, data: dict[str, Any]) -> None:
        if self.leads:
            self.tell(kind, data)

    @staticmethod
    def _due(every: int | None, step: int) -> bool:
        return every is not None and step % every == 0


def averaged(steps: int) -> int:
    """Over how many of the last steps of a run of `steps` its final loss is a mean: a tenth, from 1 to 20. One batch's varies by much."""
    return max(1, min(20, steps // 10))


def _rates(built: Built) -> Rates:
    """The rates of this run: on a CPU and for a module of the user's own without MFU."""
    spec, device = built.run.train, built.mesh.device
    arch = built.architecture
    flops = None if arch is None else flops_per_token(arch, spec.data.seq_len)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return Rates(spec.layout.world_size, flops, peak_flops(name, spec.precision.compute))


def _allocated(device: torch.device) -> int | None:
    """Bytes of tensors on a CUDA device; None on CPUs, where the rank's actor looks at the whole process."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else None


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
