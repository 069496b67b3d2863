"""What ZeRO-3 holds beside its shards: gathered parameters, and their gradients on the way. Imports no torch.

b is the numbers of one block, e those of embedding, last norm and head, which are one unit of `fully_shard`.

- In the forward pass there are the ends, the running block, in its message too, and `overlap.prefetch` blocks ahead of it with their
  experts.
- At the loss nothing is gathered: blocks are dropped after their forward pass. Under a pipeline all are kept for the backward pass.
- In the backward pass of a block it and the next one are gathered, and the ends, which the head needed first. The block's gradients
  exist in the compute dtype and, until they are reduced, in the master's.
- At the end of the backward pass the gradients of the ends are there in both dtypes. Their values are dropped by then, but under a
  pipeline.
- With ZeRO++ codes and quotients are beside what is gathered or reduced.
- On gloo the sums of p + 1 blocks are in transit with `overlap.prefetch` p: each has its gradients and what the others sent of theirs, in
  the master's dtype. It is so in a step's first micro-batch without sharding groups: others wait for each sum (`fsdp_comm.py`).
"""

from . import zero_plus_plus
from .estimate import Setting


def sums_whole(setting: Setting) -> bool:
    """Whether gradients are summed whole until a stage's last backward pass (`fsdp.py`), also those of a step's only micro-batch."""
    return setting.layout.pipeline > 1


def at_loss(setting: Setting, block: int, ends: int, blocks: int) -> float:
    """Bytes beside the shards of a rank with `blocks` blocks of `block` numbers, and `ends` numbers of embedding, norm and head."""
    if setting.layout.zero != 3 or setting.layout.pipeline == 1:
        return 0
    return setting.compute * (blocks * block + ends)


def in_forward(setting: Setting, block: int, ends: int, blocks: int, unshared: int) -> float:
    """The same in the forward pass, while blocks follow. `unshared` numbers of a block are on no other rank: they are not sent ahead."""
    if setting.layout.zero != 3 or setting.layout.pipeline > 1:
        return 0
    ahead = min(setting.prefetch, blocks - 1)
    return setting.compute * (ends + 2 * block + ahead * (block - unshared))


def in_backward(setting: Setting, block: int, ends: int, blocks: int) -> float:
    """The same in the backward pass of a block."""
    if setting.layout.zero != 3:
        return 0
    c, m = setting.compute, setting.master
    whole = blocks if setting.layout.pipeline > 1 else min(2, blocks)
    return c * (whole * block + ends) + (c + m) * block + zero_plus_plus.working_bytes(setting, block)


def divided(setting: Setting, unshared: int) -> float:
    """Bytes of what is divided in place of a reduce-scatter, of `unshared` numbers of a block: the quotient, and its copy in the shard."""
    return 2 * setting.master * unshared


def ends(setting: Setting, numbers: int) -> float:
    """Bytes of the gathered ends of a model in one stage, which have `numbers`."""
    return setting.compute * numbers if setting.layout.zero == 3 else 0


def at_end(setting: Setting, block: int, ends: int, blocks: int) -> float:
    """The same at the end of the backward pass."""
    if setting.layout.zero != 3:
        return 0
    whole = blocks * block + ends if setting.layout.pipeline > 1 else 0
    return setting.compute * whole + (setting.compute + setting.master) * ends


def at_start(setting: Setting, block: int, ends: int) -> float:
    """The same when a micro-batch begins in a model of one stage: what is gathered is copied out of the message, and a block is fetched
    ahead.
    """
    if setting.layout.zero != 3 or setting.layout.pipeline > 1:
        return 0
    return (setting.compute + zero_plus_plus.message_bytes(setting)) * ends + setting.compute * 2 * block


def sums_in_transit(setting: Setting, blocks: int) -> int:
    """Blocks whose gradients are in transit at a time on gloo; 0 where no more than one is."""
    layout = setting.layout
    waits = layout.shard is not None or layout.pipeline > 1 or zero_plus_plus.quantises_gradients(setting)
    if setting.device != "cpu" or layout.zero != 3 or waits:
        return 0
    return min(setting.prefetch + 1, blocks)


def in_transit(setting: Setting, block: int, ends: int, blocks: int) -> float:
    """The same as `in_backward` when the last of these sums has started. The block's own values are dropped by then."""
    sums = sums_in_transit(setting, blocks)
    return setting.compute * (block * (sums < blocks) + ends) + 2 * setting.master * block * sums
