"""A seed for each sample, which depends on the job's seed, the split and the sample's number alone.

What a source draws for a sample (noise, masks, crops) is then the same on every layout and after every restart. Imports no torch.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from .shuffle import mix


def sample_seeds(key: str, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """The seeds (0 ≤ seed < 2⁶³) of `samples` [n] under `key`, which names split and seed."""
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return (mix(samples.astype(np.uint64) ^ np.frombuffer(digest, dtype="<u8")) >> np.uint64(1)).astype(np.int64)
