"""A new thread's device. CUDA's current device belongs to a thread and begins as device 0, where what uses it makes a context."""

import torch


def use_device(device: torch.device) -> None:
    """Use the rank's own device in this thread too, so that nothing initialises device 0."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
