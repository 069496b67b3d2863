"""Recordings of a training thread by torch, which begin and end on it."""

import torch

from ...strategies import torch_version
from ..messages.profile_request import Kind
from ..torch_recordings import NotRecorded, Recording
from ..torch_recordings import begun as begun_by_torch


def begun(kind: Kind, device: torch.device) -> Recording:
    """Raises NotRecorded."""
    if kind == "memory" and device.type == "cuda" and not torch_version.tried():
        raise NotRecorded(f"memory is not recorded with torch {torch.__version__}, which was not tried")
    return begun_by_torch(kind, device.type)
