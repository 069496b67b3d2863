"""What ZeRO-1 and ZeRO-2 hold of gradient buckets that are on their way. Imports no torch."""

from . import zero_plus_plus
from .estimate import Setting


def sent(setting: Setting, parameters: int, largest: int, largest_inside: int) -> float:
    """Bytes of the buckets that ZeRO-2 sends: those of the previous micro-batch arrive during the next one.

    `parameters`: numbers of a rank; `largest`: of its largest parameter; `largest_inside`: of the largest one of a block.
    """
    if not setting.each_microbatch:
        return 0
    bucket = max(setting.bucket_bytes, setting.compute * largest_inside)
    most = max(setting.bucket_bytes, setting.compute * largest) + setting.prefetch * bucket
    return min(most, setting.compute * parameters)


def received(setting: Setting, parameters: int, largest: int) -> float:
    """Bytes in which ZeRO-1 and ZeRO-2 receive the buckets in transit on gloo, whose reduce-scatter is an all-to-all and a local sum."""
    exchanged = setting.device == "cpu" or zero_plus_plus.quantises_gradients(setting)
    if not exchanged or setting.layout.zero not in (1, 2):
        return 0
    bucket = max(setting.bucket_bytes, setting.sent * largest)
    return min(setting.prefetch * bucket, setting.sent * parameters)
