"""Which dimension of a parameter ZeRO-3 shards. Imports no torch."""

from collections.abc import Sequence


def shard_dim(shape: Sequence[int], parts: int) -> int:
    """The first dimension of a plain tensor, which torch pads; the second if the first has fewer rows than `parts`, which divide it.

    A rank has few of a layer's experts: sharded by the first dimension some of its replicas would hold whole experts and others none.
    """
    if len(shape) < 2 or shape[0] >= parts:
        return 0
    return 0 if shape[1] % parts else 1
