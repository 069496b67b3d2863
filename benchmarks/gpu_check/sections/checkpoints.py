"""Checkpoints: how long they pause training, how fast they are written, and what steps feel of them."""

from collections.abc import Iterator
from statistics import median

from shardyard.workers.trainer.callbacks.checkpointing import Checkpointing

from ..checks import Check, Place
from ..engine import Engine, interleaved, ratios
from ..link import GIB, link
from ..report import Line, measured, ratio

#: A checkpoint may pause training for this many times as long as the link needs for its bytes, and a little.
PAUSED, LEAST_S = 2.0, 0.05
EVERY = 3
STEPS = 4 * EVERY + 1


def checks(at: Place) -> list[Check]:
    return [Check("pauses", lambda: _pauses(at)), Check("a step with checkpoints", lambda: _felt(at))]


def _pauses(at: Place) -> Iterator[Line]:
    spec = at.sizes.small.spec(checkpoint={"final": False, "every": EVERY, "keep": 1})
    with Engine(at, spec, job="pauses") as engine:
        for _ in range(STEPS):
            engine.step()
            _written(engine)  # else a save waits for the one before, which is the disk's time
        saved = engine.of_kind("checkpoint")
    first, *later = saved
    size = first["bytes"]
    bound = PAUSED * size / link(at).to_host + LEAST_S
    yield measured("training paused by the first checkpoint", first["held_s"], "s", note=f"{size / GIB:.2f} GiB")
    paused = median(each["held_s"] for each in later)
    yield measured("training paused by a later one", paused, "s", at_most=bound if at.cuda else None)
    yield measured("written at", size / median(each["seconds"] for each in later) / GIB, "GiB/s")


def _felt(at: Place) -> Iterator[Line]:
    model = at.sizes.small
    every = at.sizes.steps
    saving = model.spec(checkpoint={"final": False, "every": every, "keep": 1})
    with Engine(at, saving, job="felt") as engine, Engine(at, model.spec()) as plain:

        def block(steps: int) -> float:
            """The steps alone. What is still written after them would hold up the next save."""
            seconds = engine.block(steps)
            _written(engine)
            return seconds

        yield ratio(
            f"a step with a checkpoint every {every} over one without", ratios(interleaved(at, block, plain.block))
        )


def _written(engine: Engine) -> None:
    """Wait until no checkpoint is being written."""
    for callback in engine.loop.callbacks.ordered:
        if isinstance(callback, Checkpointing):
            callback.wait()
