"""Offload: what a step takes longer for the bytes that it moves, against the measured link."""

from collections.abc import Iterator
from statistics import median
from typing import Any

from ..checks import Check, Place, Skip
from ..engine import Engine, interleaved
from ..link import GIB, Link, link
from ..report import Line, measured


def checks(at: Place) -> list[Check]:
    return [
        Check("link", lambda: _link(at)),
        Check("optimizer", lambda: _optimizer(at)),
        Check("activations", lambda: _activations(at)),
        Check("parameters", _parameters),
    ]


def _link(at: Place) -> Iterator[Line]:
    found = link(at)
    yield measured("link, device to host", found.to_host / GIB, "GiB/s")
    yield measured("link, host to device", found.to_device / GIB, "GiB/s")


def _optimizer(at: Place) -> Iterator[Line]:
    """Gradients go to the host and new values back, 4 bytes of each per parameter: no engine can do with less."""
    with Engine(at, at.sizes.small.spec()) as engine:
        parameters = engine.parts.parameters
    yield from _compared(at, "optimizer", {"optimizer": 1.0}, 4 * parameters, 4 * parameters)


def _activations(at: Place) -> Iterator[Line]:
    """What autograd keeps for the backward pass goes to the host and back; the probe counts it where it stays."""
    at.needs_tried_torch("a probe")
    with Engine(at, at.sizes.small.spec(probe={"every": 1000})) as engine:
        engine.block(2)
        kept = engine.of_kind("probe")[0]["memory"]["activations"]["max"]
    yield from _compared(at, "activations", {"activations": True}, kept, kept)


def _parameters() -> Iterator[Line]:
    raise Skip("only ZeRO-3 offloads parameters, and it needs 2 devices")
    yield


def _compared(at: Place, name: str, offload: dict[str, Any], to_host: int, to_device: int) -> Iterator[Line]:
    """What the step takes longer, and what the link alone would need for the bytes."""
    model, found = at.sizes.small, link(at)
    with Engine(at, model.spec(offload=offload)) as moving, Engine(at, model.spec()) as plain:
        pairs = interleaved(at, moving.block, plain.block)
    extra = median(one - other for one, other in pairs)
    size = f"{(to_host + to_device) / GIB:.2f} GiB"
    yield measured(f"{name}: a step takes longer by", 1e3 * extra, "ms", note=size)
    if extra <= 0:
        raise Skip("the step takes no longer: there is no rate")
    yield measured(f"{name}: rate of its bytes", (to_host + to_device) / extra / GIB, "GiB/s")
    yield measured(f"{name}: time of the link alone over that", _link_s(found, to_host, to_device) / extra, "×")


def _link_s(found: Link, to_host: int, to_device: int) -> float:
    return to_host / found.to_host + to_device / found.to_device
