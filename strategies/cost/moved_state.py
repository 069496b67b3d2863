"""Bytes of an optimizer whose state is in host memory or on a disk. `own`: the parameters whose state a rank keeps. Imports no torch."""

from ..memory_options import DISK_BUCKET_BYTES, DISK_BUFFERS, OFFLOAD_BUCKET_BYTES
from .estimate import Setting


def in_memory(setting: Setting, own: int) -> int:
    """Of the host: values and moments, and buffers for gradients and for values; two of each, one if it holds all."""
    offload = setting.memory_options.offload
    moved = setting.master * own * offload.optimizer
    bucket = DISK_BUCKET_BYTES if offload.to == "disk" else OFFLOAD_BUCKET_BYTES
    buffers = 2 * (moved if moved <= bucket else 2 * bucket)
    state = moved
    if offload.to == "disk":  # in its buffers; values that are not there come down as gradients do
        state = min(moved, DISK_BUFFERS * DISK_BUCKET_BYTES)
        buffers *= 1 if _has_masters(setting) else 1.5
    return round((1 + setting.moments) * state + buffers)


def on_disk(setting: Setting, own: int) -> float:
    """Masters and moments. The copy that a checkpoint is written from takes 12 bytes per element beside them."""
    offload = setting.memory_options.offload
    if offload.to != "disk":
        return 0
    return (_has_masters(setting) + setting.moments) * setting.master * own * offload.optimizer


def notes(setting: Setting, own: int) -> tuple[str, ...]:
    """What a user should know of state on a disk."""
    size = on_disk(setting, own)
    if not size:
        return ()
    text = f"Each step reads {size / 1e9:,.1f} GB of optimizer state from a rank's disk and writes as much."
    snapshots = "Snapshots keep this state in host memory as well; snapshot.every: 0 keeps it out."
    return (text, snapshots) if setting.snapshots else (text,)


def _has_masters(setting: Setting) -> bool:
    """Whether the values that the optimizer updates are others than those that the device has."""
    return setting.compute != setting.master and setting.layout.zero < 3
