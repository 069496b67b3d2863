"""Samples of a data source of the user's own, in an order that every rank can compute for itself.

A sample is a function of the source's options, the job's seed and the sample's number alone, as a window of tokens is
(`dataset.py`). So a run continues with any sample, on any layout, and a source keeps no position. A source that breaks this, raises,
or returns something else than rows of tensors is named in the error.
"""

import hashlib
import json
import operator
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...strategies.fields import Fields
from ..models.own_factory import made
from ..models.own_module import SOURCE, OwnSource
from ..spec import TrainSpec
from .dataset import Rows, numbers_of
from .errors import DataError
from .position import SampleOrder
from .sample_seeds import sample_seeds
from .shuffle import shuffled

Numbers = NDArray[np.int64]


class DataSource(Protocol):
    """What the factory returns that `data.source` names.

    Both methods take the indices and the seeds of the wanted samples, int64 arrays [rows], and return one tensor [rows, …] per name,
    on the CPU, in memory that later calls leave as it is. Row i is a function of indices[i] and seeds[i] alone. A seed differs between
    the epochs of an index. One call at a time.
    """

    @property
    def samples(self) -> int | None:
        """The number of training samples, which every epoch shuffles in another order; None: without end, in their order.

        Any integer, also one of numpy or a tensor of one element.
        """

    @property
    def validation_samples(self) -> int:
        """The number of validation samples; 0, or no such attribute: there is no validation."""

    def training(self, indices: Numbers, seeds: Numbers) -> Mapping[str, Tensor]:
        """Training samples."""

    def validation(self, indices: Numbers, seeds: Numbers) -> Mapping[str, Tensor]:
        """Validation samples: their seeds are the same in every validation of every job."""


@dataclass(frozen=True, eq=False)
class OwnSamples:
    """The samples of a source, as a training reads them. It stands in the place of `Tokens`; a sample counts as one token."""

    order: SampleOrder
    global_batch: int
    source: DataSource
    train_windows: int | None  # samples; None: without end
    validation_windows: int
    vocab: int = 1  # nothing is looked up by token
    unigram_loss: float | None = None
    end: int | None = None  # its samples are no documents
    sha256: str = ""  # no file has them
    #: One thread reads ahead while another one validates.
    _reading: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def train_tokens(self) -> int:
        """The number of training samples; 0: without end."""
        return self.train_windows or 0

    @property
    def validation_tokens(self) -> int:
        return self.validation_windows

    def batch(self, first: int, rows: Rows) -> tuple[Fields, Tensor]:
        """Fields, and numbers [rows] (int64), of the given rows of the global batch that begins with the sample `first`."""
        samples = first + numbers_of(rows, self.global_batch)
        key = f"train/{self.order.seed}"
        indices = samples if self.train_windows is None else shuffled(samples, self.train_windows, key)
        return self._read("training", indices, samples, key)

    def validation(self, batch_index: int, rows: Rows) -> tuple[Fields, Tensor]:
        """Fields and numbers [rows] of a validation batch: the same for every seed and step."""
        samples = batch_index * self.global_batch + numbers_of(rows, self.global_batch)
        indices = shuffled(samples, self.validation_windows, "validation")
        return self._read("validation", indices, samples, "validation")

    def _read(self, split: str, indices: Numbers, samples: Numbers, key: str) -> tuple[Fields, Tensor]:
        seeds, where = sample_seeds(key, samples), f"{self.order.source}, {split} samples {_span(samples)}"
        try:
            with self._reading:
                found = getattr(self.source, split)(indices, seeds)
        except Exception as error:  # the user's own code
            message = f"{where}: {type(error).__name__}: {error}."
            raise DataError("source_failed", message, "Correct the source.", "data.source") from error
        return _checked(found, len(samples), where), torch.from_numpy(samples)


def open_samples(spec: TrainSpec) -> OwnSamples:
    """The samples of `spec.data.source`. Raises what `made` raises, and `DataError` if the source cannot be used."""
    data = spec.data
    source: DataSource = made(OwnSource(data.source, spec.model.code, data.options), SOURCE)
    size, held_out = _sizes(source, data.source)
    content = json.dumps([data.options, size, held_out], sort_keys=True)
    digest = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    order = SampleOrder("", "", 1, 0.0, spec.seed, source=data.source, content=digest)
    samples = OwnSamples(order, spec.global_batch, source, size, held_out)
    _refuse_changing(samples)
    return samples


def _sizes(source: Any, name: str) -> tuple[int | None, int]:
    """The numbers of training and validation samples."""
    for attribute in ("samples", "training"):
        if not hasattr(source, attribute):
            raise _unusable(f"{name} returned a {type(source).__name__} without {attribute}")
    samples, validation = source.samples, getattr(source, "validation_samples", 0)
    size, held_out = None if samples is None else _whole(samples), _whole(validation)
    if size is not None and size < 1:
        raise _unusable(f"{name} has samples = {samples!r}, which must be a whole number of 1 or more, or None")
    if held_out < 0:
        raise _unusable(f"{name} has validation_samples = {validation!r}, which must be a whole number of 0 or more")
    if held_out and not hasattr(source, "validation"):
        raise _unusable(f"{name} has {held_out} validation samples, and no method validation")
    return size, held_out


def _whole(size: Any) -> int:
    """The size as Python's integer, which other integers are not, such as numpy's; -1 for what is none."""
    try:
        return -1 if isinstance(size, bool | np.bool) else operator.index(size)
    except TypeError:
        return -1


def _unusable(what: str) -> DataError:
    remedy = "See shardyard.workers.data.own_source.DataSource for what a source has."
    return DataError("source_unusable", f"{what}.", remedy, "data.source")


def _checked(found: Any, rows: int, where: str) -> Fields:
    """`found`, if it is a mapping of CPU tensors that all have `rows` rows."""
    if not isinstance(found, Mapping) or not found:
        raise _unusable(f"{where}: it returned a {type(found).__name__}, not one tensor per name")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise _unusable(f"{where}: {name!r} is a {type(value).__name__}, not a tensor")
        if value.layout != torch.strided:
            raise _unusable(f"{where}: {name!r} is {value.layout}, not a dense tensor")
        if value.device.type != "cpu" or not value.dim() or len(value) != rows:
            raise _unusable(f"{where}: {name!r} is {tuple(value.shape)} on {value.device}, not {rows} rows on the CPU")
    return Fields(found)


def _refuse_changing(samples: OwnSamples) -> None:
    """Raises `DataError` if later rows are written over the first ones, or if the first sample is another one when it is read again, alone.

    On CPUs a step does not copy its rows, and those of the next one are read meanwhile.
    """
    source, rows = samples.order.source, range(min(2, samples.global_batch))
    first, _ = samples.batch(0, rows)
    kept = {name: tensor.clone() for name, tensor in first.items()}
    samples.batch(1, rows)
    for name, tensor in first.items():
        if not _are_same(tensor, kept[name]):
            raise _unusable(f"{source}: {name!r} is in memory that the source fills again; return new tensors")
    again, _ = samples.batch(0, [0])
    for name, tensor in kept.items():
        if name not in again or not _are_same(tensor[:1], again[name]):
            raise _unusable(
                f"{source}: {name!r} of sample 0 differs when it is read again, so no run could be repeated"
            )


def _are_same(one: Tensor, other: Tensor) -> bool:
    """Whether both have the same bits: a NaN, such as for a missing value, is itself."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


def _span(samples: Numbers) -> str:
    return f"{samples[0]} to {samples[-1]}" if len(samples) > 1 else f"{samples[0]}" if len(samples) else "none"
