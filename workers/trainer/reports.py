"""The loop's events: rank 0 reports on the job, every rank reports its own step times and memory."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from ...strategies.activation_memory.state_file import DiskUse
from ..messages.event import EvalEvent, Event, IncidentEvent, PlanEvent, SummaryEvent, to_json
from ..messages.event_text import format_event
from ..messages.rank_event import RankStepEvent, StoppedEvent
from ..models.flops import flops_per_token
from ..process_memory import MemorySampler
from .build import TrainerParts
from .device_facts import capability_of
from .event_outbox import EmitEvent
from .step_record import StepRecord
from .throughput import MFU_FORMULA, Throughput, peak_flops
from .train_state import TrainState


class Reporter:
    """Makes the loop's events and emits them."""

    def __init__(self, parts: TrainerParts, state: TrainState, emit: EmitEvent) -> None:
        self._parts, self._state, self._emit = parts, state, emit
        self.is_first = dist.get_rank() == 0
        self._step_tokens = parts.spec.global_batch * parts.spec.data.tokens_per_sample
        self._throughput = _throughput(parts)
        self._memory = MemorySampler(partial(_allocated, parts.mesh.device))

    def emit(self, event: Event) -> None:
        """Emit an event about this rank."""
        self._emit(event.kind, to_json(event))

    def of_job(self, event: Event) -> None:
        """Emit an event about the whole job, on rank 0 only."""
        if self.is_first:
            self.emit(event)

    def plan(self) -> None:
        """Report what this run trains."""
        parts = self._parts
        plan = PlanEvent(
            layout=str(parts.spec.layout),
            world_size=parts.spec.layout.world_size,
            parameters=parts.parameters,
            batch=str(parts.batch),
            tokens_per_step=self._step_tokens,
            device=parts.run.device,
            train_tokens=parts.tokens.train_tokens,
            validation_tokens=parts.tokens.validation_tokens,
            unigram_loss=parts.tokens.unigram_loss,
            precision=parts.spec.precision.compute,
            compile=parts.spec.compile is True,
            choices=parts.choices,
            capability=capability_of(parts.mesh.device),
        )
        self.of_job(replace(plan, **parts.parallel.runner.plan()))

    def step(self, record: StepRecord) -> None:
        """Report one step, on every rank: its own times and memory, and on rank 0 the job's numbers."""
        timing = record.stats.timing
        event = RankStepEvent(
            step=record.step,
            step_s=record.seconds,
            busy_s=None if timing is None else timing.busy_s,
            wait_s=None if timing is None else timing.wait_s,
            part=self._parts.mesh.part,
            allocated=self._memory.due(),
        )
        self.emit(self._with_job(event, record) if self.is_first else event)

    def _with_job(self, event: RankStepEvent, record: StepRecord) -> RankStepEvent:
        """Rank 0's event, with the numbers of the whole job."""
        stats = record.stats
        speed = self._throughput.of(self._step_tokens, record.mean_s or record.seconds)
        logged = {**stats.logged, **self._disk(record.seconds)}
        return replace(
            event,
            loss=stats.loss,
            lr=record.lr,
            grad_norm=stats.grad_norm if math.isfinite(stats.grad_norm) else None,
            loss_scale=stats.loss_scale,
            skipped=stats.skipped,
            tokens=self._state.position.tokens(record.step),
            tokens_per_s=speed["tokens_per_s"],
            tokens_per_s_device=speed["tokens_per_s_device"],
            mfu=speed["mfu"],
            logged={name: value if math.isfinite(value) else None for name, value in logged.items()} or None,
        )

    def _disk(self, seconds: float) -> dict[str, float]:
        """What this step of `seconds` did on the disk of this rank's state, if that is on one."""
        file = self._parts.state_file
        return {} if file is None else disk_curves(file.take_use(), seconds)

    def validation(self, step: int, batches: int, routing: Mapping[str, float]) -> None:
        """Report the validation loss after `step`, over `batches` global batches, and the use of experts in them."""
        event = EvalEvent(
            step=step,
            loss=self._state.progress.validation_loss,
            unigram_loss=self._parts.tokens.unigram_loss,
            tokens=batches * self._step_tokens,
            balance_loss=routing.get("balance_loss"),
            router_z_loss=routing.get("router_z_loss"),
            dropped=routing.get("dropped"),
        )
        self.of_job(event)

    def stopped(self, step: int) -> None:
        """Report that the run stops early. Every rank does, so that the supervisor does not take the job for completed."""
        self.emit(StoppedEvent(step=step))

    def incident(self, cause: str, message: str, step: int | None = None) -> None:
        """Report a failure that does not end the training."""
        self.of_job(IncidentEvent(cause=cause, message=message, step=step))

    def summary(self) -> None:
        """Report the summary of the run."""
        progress, last_step = self._state.progress, self._parts.spec.steps
        steps = last_step - (progress.began_at or 1) + 1
        losses = progress.last_losses
        speed = self._throughput.of(steps * self._step_tokens, progress.trained_s)
        event = SummaryEvent(
            steps=steps,
            tokens=steps * self._step_tokens,
            first_loss=progress.first_loss,
            last_loss=statistics.fmean(losses) if losses else None,
            last_steps=len(losses),
            validation_loss=progress.validation_loss,
            unigram_loss=self._parts.tokens.unigram_loss,
            tokens_per_s=speed["tokens_per_s"],
            tokens_per_s_device=speed["tokens_per_s_device"],
            mfu=speed["mfu"],
            mfu_formula=MFU_FORMULA,
            time_to_first_step_s=progress.first_step_s,
            checkpoint=self._state.newest_checkpoint,
            export=self._state.exported,
        )
        self.of_job(event)


def disk_curves(use: DiskUse, step_s: float) -> dict[str, float]:
    """Name → number of what one rank read and wrote in a step of `step_s` seconds, for the job's curves. Bytes, seconds, bytes/s.

    `disk/written_per_day` is for comparison with a disk's endurance, which vendors state as bytes written per day. `disk/gathered` and
    `disk/gather_waited_s` are there if parameters are on the disk.
    """
    gathered = {"disk/gathered": float(use.gathered), "disk/gather_waited_s": use.gather_waited_s}
    return {
        "disk/read": float(use.read),
        "disk/written": float(use.written),
        "disk/bandwidth": (use.read + use.written) / use.seconds if use.seconds else 0.0,
        "disk/waited_s": use.waited_s,
        "disk/written_per_day": use.written * 86_400 / step_s if step_s else 0.0,
        **(gathered if use.gathered else {}),
    }


def log_and_emit(emit: EmitEvent) -> EmitEvent:
    """`emit` that also prints every event but the steps: a trainer's standard output is its log."""

    def logged(kind: str, data: dict[str, Any]) -> None:
        line = format_event(kind, data) if kind != "step" else None
        if line is not None:
            print(line, flush=True)  # noqa: T201
        emit(kind, data)

    return logged


def _throughput(parts: TrainerParts) -> Throughput:
    """The throughput; without MFU on a CPU and for a module of the user's own."""
    spec, device = parts.spec, parts.mesh.device
    flops = None if parts.architecture is None else flops_per_token(parts.architecture, spec.data.seq_len)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return Throughput(spec.layout.world_size, flops, peak_flops(name, spec.precision.compute))


def _allocated(device: torch.device) -> int | None:
    """Bytes of tensors on a CUDA device. None on a CPU: the rank's actor reads the memory of the whole process."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else None
