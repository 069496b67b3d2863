"""What the training loop sees of data parallelism, whichever stage."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol

from torch import nn

from .param_shard import ParamShard


class DataStrategy(Protocol):
    """The methods of a data strategy that the training loop calls, in this order each step."""

    shards: list[ParamShard]
    all_shards: list[
        ParamShard
    ]  # and those without an element here, in an order that the ranks with the same parts of the model share
    gradient_peak: int  # most bytes of gradients held so far on this rank; may be set to 0

    def before_backward(self, last: bool) -> None:
        """Called before each micro-batch's backward pass; `last` on the last one."""

    def collect(self) -> None:
        """Called after a pass of a pipeline's schedule that set gradients without calling the parameters' hooks."""

    def finishing(self, values: Collection[nn.Parameter]) -> AbstractContextManager[None]:
        """Around a pass of a pipeline's schedule that makes the gradients of `values` final: their reduction may start."""

    def reduce(self) -> None:
        """After the last backward pass: set every param shard's reduced gradient (`shard.set_gradient`)."""

    def publish(self) -> None:
        """After the optimizer: let the model compute with the updated param shards, and drop all gradients."""

    def settle(self) -> None:
        """Wait until every parameter has its new value."""

    def after_validation(self) -> None:
        """Called after forward passes that no backward pass follows."""


class AfterReduction:
    """A data strategy that does what another one does, and more after that has reduced: see `reduce` of its kinds."""

    def __init__(self, data: DataStrategy) -> None:
        self._data = data
        self.shards: list[ParamShard] = data.shards
        self.all_shards: list[ParamShard] = data.all_shards
        self.before_backward, self.publish = data.before_backward, data.publish
        self.after_validation, self.collect = data.after_validation, data.collect
        self.settle, self.finishing = data.settle, data.finishing

    @property
    def gradient_peak(self) -> int:
        return self._data.gradient_peak

    @gradient_peak.setter
    def gradient_peak(self, value: int) -> None:
        self._data.gradient_peak = value
