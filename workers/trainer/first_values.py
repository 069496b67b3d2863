"""The values of step 0: each rank draws, or reads from a published model's files, what its param shards hold and no more."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ...strategies.data_strategy import DataStrategy
from ...strategies.param_shard import ParamShard
from ..huggingface.import_weights import Pretrained
from ..model_spec import ModelSpec
from ..models.init import initial_values
from ..models.normal_values import ParamSlice
from ..models.presets import Architecture
from ..ready_ranks import wait_for_all

#: The values of a param shard, whose tensor has none yet.
Source = Callable[[ParamShard], torch.Tensor]


@dataclass(frozen=True)
class FirstValues:
    """Where the values of a model of `architecture` come from: the files that `model` names, else `seed`."""

    model: ModelSpec
    architecture: Architecture
    seed: int
    names: tuple[str, ...]  # of all parameters of the model

    @torch.no_grad()
    def set(self, data: DataStrategy, beat: Callable[[], None] = lambda: None) -> None:
        """Fill every param shard, and let the model compute with them. Collective. Raises `Refusal` for unfit files.

        `beat` is called for each shard, and while other ranks fill theirs: a large model on slow storage takes longer than the limit of a
        collective.
        """
        source = self._source()
        for shard in data.shards:
            beat()
            shard.tensor.copy_(source(shard))
        wait_for_all("first values", beat)
        data.publish()
        data.settle()

    def _source(self) -> Source:
        if self.model.from_ is None:
            return self._drawn
        files = Pretrained(Path(self.model.from_).expanduser(), self.architecture, self.names)
        return lambda shard: files(shard.name, shard.shape, shard.offset, shard.tensor.shape)

    def _drawn(self, shard: ParamShard) -> torch.Tensor:
        where = ParamSlice(shard.shape, shard.offset, tuple(shard.tensor.shape))
        return initial_values(shard.name, where, self.seed, self.architecture, shard.tensor.device)
