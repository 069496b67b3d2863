"""How often the host waits for the device in a step, by two witnesses: the profiler's runtime calls and torch's debug mode.

A dry run counts 1 beside events: the host reads the loss and the norm. The profiler's own calls cancel: two runs of different length
are compared.
"""

import warnings
from collections import Counter
from collections.abc import Iterator

import torch
from torch.profiler import ProfilerActivity, profile

from ..checks import Check, Place
from ..engine import Engine
from ..report import Line, measured

#: What a dry run counts in a step of one device, without events.
EXPECTED = 1
#: Runtime calls by which the host waits for a stream or the device; an event that has passed does not hold it.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize")
EVENTS = "cudaEventSynchronize"
SHORT, LONG = 3, 9


def checks(at: Place) -> list[Check]:
    return [Check("a step", lambda: _step(at))]


def _step(at: Place) -> Iterator[Line]:
    at.needs_cuda("stream to wait for")
    with Engine(at, at.sizes.small.spec()) as engine:
        engine.block(at.sizes.warm)
        few, many = _calls(engine, SHORT), _calls(engine, LONG)
        each = {name: (many[name] - few[name]) / (LONG - SHORT) for name in (*WAITS, EVENTS)}
        warned = _warned(engine, SHORT)
    waits = sum(each[name] for name in WAITS)
    note = ", ".join(f"{name} {each[name]:.1f}" for name in WAITS)
    yield measured("waits of the host per step, by the profiler", waits, at_most=EXPECTED, note=note)
    yield measured(f"{EVENTS} per step", each[EVENTS])
    lines = ", ".join(f"{line} ({count})" for line, count in Counter(warned).most_common(4))
    yield measured("waits per step, by torch's debug mode", len(warned) / SHORT, at_most=EXPECTED, note=lines)


def _calls(engine: Engine, steps: int) -> Counter[str]:
    """Runtime calls by name in some steps."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            engine.step()
    return Counter({event.key: event.count for event in profiler.key_averages()})


def _warned(engine: Engine, steps: int) -> list[str]:
    """The lines of code at which torch warns of a synchronising call."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(steps):
                engine.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = (one for one in caught if "synchroniz" in str(one.message))
    return [f"{one.filename.rpartition('/')[2]}:{one.lineno}" for one in waits]
