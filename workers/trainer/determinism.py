"""Makes this process compute the same bits in each run. The environment is set before CUDA and NCCL start, which read it once.

cuBLAS then uses workspaces of a fixed size, and NCCL sums in one order, whatever it measures. An operator without a deterministic
algorithm raises an error that names it.
"""

import os
from collections.abc import MutableMapping
from typing import Any, Final, cast

import torch

_ENVIRONMENT: Final = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


def compute_the_same_bits(env: MutableMapping[str, str] | None = None) -> None:
    """Set torch and `env` (default: this process' environment). What the operator has set in the node's environment wins."""
    env = os.environ if env is None else env
    for name, value in _ENVIRONMENT.items():
        if not env.get(name):
            env[name] = value
    torch.use_deterministic_algorithms(True)
    # The engine writes its buffers before it reads them; filling them with NaN first would only take time.
    cast(Any, torch.utils.deterministic).fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
