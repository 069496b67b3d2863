"""Code of a model whose blocks sleep: a module of the user's own, of which a test knows what its passes cost."""

#: `Sleep.apply(x, forward, backward)` is x, after these seconds; each pass has its own. The beginning of a module's code.
SLEEPING = """
import time

import torch
from torch import nn

class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.seconds = backward
        time.sleep(forward)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds)
        return grad, None, None
"""
