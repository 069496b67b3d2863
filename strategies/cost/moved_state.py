"""Bytes of state in host memory or on a disk. `own`: the parameters whose optimizer state a rank keeps. Imports no torch."""

from ..memory_options import DISK_BUCKET_BYTES, DISK_BUFFERS, OFFLOAD_BUCKET_BYTES, PARAMETER_BUFFERS
from .estimate import Setting


def in_memory(setting: Setting, own: int) -> int:
    """Of the host for the optimizer: values and moments, and buffers for gradients and for values; two of each, one if it holds all."""
    offload = setting.memory_options.offload
    moved = setting.master * own * _share(setting)
    bucket = DISK_BUCKET_BYTES if offload.to == "disk" else OFFLOAD_BUCKET_BYTES
    buffers = moved if moved <= bucket else 2 * bucket
    state = moved
    if offload.to == "disk":  # in its buffers
        state = min(moved, DISK_BUFFERS * DISK_BUCKET_BYTES)
    return round((1 + setting.moments) * state + _directions(setting) * buffers)


def parameters_in_memory(setting: Setting, own: int, pinned: int, modules: int, largest: int) -> int:
    """Of the host for offloaded parameters and their gradients, `pinned` bytes each, in host memory with the optimizer's moments.

    On a disk: gradients, and buffers for the param shards of the `largest` of the rank's `modules`, in numbers.
    """
    if setting.memory_options.offload.to != "disk":
        return 2 * pinned + setting.moments * setting.master * own
    return setting.master * (own + min(PARAMETER_BUFFERS, modules) * largest)


def on_disk(setting: Setting, own: int) -> float:
    """Values and moments. The copy that a checkpoint is written from takes 12 bytes per element beside them."""
    if setting.memory_options.offload.to != "disk":
        return 0
    return disk_bytes(setting) * own * _share(setting)


def disk_bytes(setting: Setting) -> int:
    """Bytes per element on the disk: moments, and values where the device has others, or none."""
    values = setting.memory_options.offload.parameters or _has_masters(setting)
    return (values + setting.moments) * setting.master


def notes(setting: Setting, own: int) -> tuple[str, ...]:
    """What a user should know of state on a disk."""
    size = on_disk(setting, own)
    if not size:
        return ()
    parameters = setting.memory_options.offload.parameters
    what = "parameters and optimizer state" if parameters else "optimizer state"
    found = [f"Each step reads {size / 1e9:,.1f} GB of {what} from a rank's disk and writes as much."]
    if parameters:
        passes = 2 * setting.master * own * setting.batch.microbatches
        found.append(f"Its passes read at most {passes / 1e9:,.1f} GB of parameters more.")
    if setting.snapshots:
        found.append("Snapshots keep this state in host memory as well; snapshot.every: 0 keeps it out.")
    return tuple(found)


def _share(setting: Setting) -> float:
    """The share of the elements that is updated on the host by way of buffers."""
    offload = setting.memory_options.offload
    return 1 if offload.parameters and offload.to == "disk" else offload.optimizer


def _directions(setting: Setting) -> int:
    """For how many copies there are buffers: gradients down, values up, and down where the disk does not have what the device has."""
    offload = setting.memory_options.offload
    if offload.parameters:  # which are in the home of the state
        return 1
    return 2 if offload.to == "host" or _has_masters(setting) else 3


def _has_masters(setting: Setting) -> bool:
    """Whether the values that the optimizer updates are others than those that the device has."""
    return setting.compute != setting.master and setting.layout.zero < 3
