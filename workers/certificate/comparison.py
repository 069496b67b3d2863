"""Compares two trainings number by number: losses, gradient norms, validation, parameters and the optimizer's state.

In float64 two orders of the same sums differ by some 1e-16 of the largest term. The bounds leave room for a few thousand such terms, and
none for a wrong one.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from ...strategies.param_shard import ParamShard
from ...strategies.pipeline_parallel.weight_versions import PREVIOUS
from ..checkpoint import manifest as manifests
from ..checkpoint.manifest import Manifest
from ..checkpoint.reader import load_into
from ..checkpoint.staging_buffer import DTYPES
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from .training import Training

#: Largest difference of losses, relative, and of tensors, absolute.
BOUND: Final = 1e-10
#: Of norms, relative: a square root of a sum over all gradients.
BOUND_OF_NORMS: Final = 1e-8
#: Beginning of the names of what is no parameter.
_OPTIMIZER: Final = "optimizer."


@dataclass(frozen=True)
class Comparison:
    """The largest difference of one kind of number. `difference` None: some number is not finite or missing. `where`: of the largest."""

    what: str
    compared: int
    difference: float | None
    bound: float
    where: str = ""

    @property
    def equal(self) -> bool:
        return self.difference is not None and self.difference <= self.bound


def compare(found: Training, expected: Training) -> list[Comparison]:
    """All comparisons. Raises CheckpointError, StorageError."""
    return [
        _relative("losses", found.losses, expected.losses, BOUND, "step"),
        _relative("gradient norms", found.norms, expected.norms, BOUND_OF_NORMS, "step"),
        _relative("validation losses", found.validation, expected.validation, BOUND, "validation"),
        *_tensors(folder_at(found.checkpoint), folder_at(expected.checkpoint)),
    ]


def _relative(what: str, found: Sequence[float], expected: Sequence[float], bound: float, each_of: str) -> Comparison:
    if len(found) != len(expected):
        return Comparison(what, 0, None, bound, f"there are {len(found)} and {len(expected)}")
    each = _differences(found, expected)
    if not all(map(math.isfinite, each)):
        return Comparison(what, len(each), None, bound, "not finite")
    largest = max(each, default=0.0)
    where = f"{each_of} {each.index(largest) + 1}" if largest else ""
    return Comparison(what, len(each), largest, bound, where)


def largest_relative(found: Sequence[float], expected: Sequence[float]) -> float | None:
    """The largest difference, over the expected number; None if a number is missing or not finite."""
    if len(found) != len(expected):
        return None
    each = _differences(found, expected)
    return max(each, default=0.0) if all(map(math.isfinite, each)) else None


def _differences(found: Sequence[float], expected: Sequence[float]) -> list[float]:
    return [abs(a - b) / max(abs(b), 1e-300) for a, b in zip(found, expected, strict=True)]


def _tensors(found: Folder, expected: Folder) -> Iterator[Comparison]:
    """Parameters, and apart from them the rest of the state. Older versions of weights are left out: losses of later steps have them."""
    mine, theirs = manifests.read(found), manifests.read(expected)
    for what, of_parameters in (("parameters", True), ("optimizer state", False)):
        names = [
            sorted(
                name
                for name in one.tensors
                if name.startswith(_OPTIMIZER) != of_parameters and not name.startswith(PREVIOUS)
            )
            for one in (mine, theirs)
        ]
        if names[0] != names[1]:
            other = sorted(set(names[0]) ^ set(names[1]))
            yield Comparison(what, 0, None, BOUND, f"only one has {other[0]}")
            continue
        yield _largest(what, [(name, _difference(name, found, mine, expected, theirs)) for name in names[0]], mine)


def _largest(what: str, each: Sequence[tuple[str, float]], manifest: Manifest) -> Comparison:
    elements = sum(math.prod(manifest.tensors[name].shape) for name, _ in each)
    wrong = next((name for name, difference in each if not math.isfinite(difference)), None)
    if wrong is not None:
        return Comparison(what, elements, None, BOUND, wrong)
    where, largest = max(each, key=lambda one: one[1], default=("", 0.0))
    return Comparison(what, elements, largest, BOUND, where if largest else "")


def _difference(name: str, found: Folder, mine: Manifest, expected: Folder, theirs: Manifest) -> float:
    """The largest difference of a tensor's elements; infinity if shapes differ, or an element is not finite."""
    if mine.tensors[name] != theirs.tensors[name]:
        return math.inf
    left, right = _read(name, found, mine), _read(name, expected, theirs)
    if not left.numel():
        return 0.0
    largest = float((left.double() - right.double()).abs().max())
    return largest if math.isfinite(largest) else math.inf


def _read(name: str, folder: Folder, manifest: Manifest) -> torch.Tensor:
    saved = manifest.tensors[name]
    tensor = torch.empty(saved.shape, dtype=DTYPES[saved.dtype])
    load_into(folder, manifest, [ParamShard(name, saved.shape, (0,) * len(saved.shape), tensor, frozenset())])
    return tensor
