"""Process groups by name, for what sees only names: functional collectives and the flight recorder. Torch has no public lookup."""

import torch.distributed as dist

from .torch_version import require


def group_named(name: str) -> dist.ProcessGroup:
    """The group of this name, which this process is a member of. Raises `RuntimeError` if there is none."""
    require("torch.distributed.distributed_c10d._resolve_process_group")
    from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]

    group: dist.ProcessGroup = _resolve_process_group(name)  # type: ignore[arg-type]
    return group
