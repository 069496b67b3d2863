"""Param shards of `fully_shard` on a local disk: they are read ahead, and gathered from a buffer (ZeRO-Infinity, 2104.07857, section 6.2).

`fully_shard` gathers a module's parameters from memory that it has allocated for their shards. Here that memory is a mapping of a state
file: what reads a shard, such as a checkpoint or a restore, has its values. While `fully_shard` copies the shards into its message, they
are those of a buffer, which was read without the page cache (`strategies/activation_memory/disk_read_ahead.py`).

The disk has the shards in the optimizer's dtype. They are rounded when they are gathered, as shards in memory are, so no bit changes.
Disk traffic per micro-batch: at most 2mΨ/N bytes are read, for m bytes per element: once for each pass.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor

from ..activation_memory.disk_read_ahead import DiskReadAhead
from ..activation_memory.state_file import StateFile
from ..torch_version import require


class ShardsOnDisk:
    """The param shards of modules in `file`. What reads or allocates raises `StateDiskError`."""

    def __init__(self, file: StateFile) -> None:
        require("FSDPParamGroup.unshard")
        self._file, self._ahead = file, DiskReadAhead(file)

    def keep(self, module: FSDPModule) -> None:
        """Move the shards of a module to the file. `fully_shard` has just made them, in host memory that is not pinned."""
        for group in module._get_fsdp_state()._fsdp_param_groups:
            moved = [one for one in group.fsdp_params if self._move(one)]
            # A rank that has all of it gathers nothing: it reads the mapping.
            if moved and group._all_gather_process_group.size() > 1:
                number = self._ahead.add([one._sharded_param_data for one in moved])
                group.__dict__["unshard"] = partial(self._unshard, group, group.unshard, moved, number)

    def pause(self) -> None:
        """Call it before the shards change."""
        self._ahead.pause()

    def resume(self) -> None:
        """Call it after the shards have changed."""
        self._ahead.resume()

    def _move(self, one: FSDPParam) -> bool:
        """Let the shard be the file's. False if it has no element."""
        flat = one._sharded_param_data  # with the rows that pad it
        if not flat.numel():
            return False
        own = cast(DTensor, one.sharded_param)
        shape, stride = own._local_tensor.shape, own._local_tensor.stride()
        one._sharded_param_data = self._file.copy(flat)
        own._local_tensor = one._sharded_param_data.as_strided(shape, stride)
        return True

    def _unshard(
        self,
        group: FSDPParamGroup,
        unshard: Callable[[bool], None],
        moved: Sequence[FSDPParam],
        number: int,
        async_op: bool = False,
    ) -> None:
        """`unshard` of the group, from a buffer. It returns when the message has the values."""
        if group._all_gather_result is not None or group.is_unsharded:  # requested before
            unshard(async_op)
            return
        mapped = [one._sharded_param_data for one in moved]
        with self._ahead.values(number) as values:
            _set(moved, values)
            try:
                unshard(async_op)
            finally:
                _set(moved, mapped)


def _set(moved: Sequence[FSDPParam], values: Sequence[torch.Tensor]) -> None:
    for one, value in zip(moved, values, strict=True):
        one._sharded_param_data = value
