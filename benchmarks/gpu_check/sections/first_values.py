"""First values: a GPU draws the bits that a CPU draws, and how long it takes."""

from collections.abc import Iterator

import torch

from shardyard.workers.models.normal_values import ParamSlice, normal_values

from ..checks import Check, Place
from ..engine import timed
from ..report import Line, measured

#: Of a parameter: the key of its random words, and its standard deviation.
KEY, STD = (7, 11), 0.02
#: The slice that is compared: it begins and ends within blocks of random words.
COMPARED = ParamSlice((1 << 20, 4096), (12_345, 1001), (1021, 2003))
COLUMNS = 4096
TIMES = 3


def checks(at: Place) -> list[Check]:
    return [Check("bits", lambda: _bits(at)), Check("drawing", lambda: _drawing(at))]


def _bits(at: Place) -> Iterator[Line]:
    found, expected = (normal_values(KEY, STD, COMPARED, device).cpu() for device in (at.device, torch.device("cpu")))
    different = int((found.view(torch.int32) != expected.view(torch.int32)).sum())
    yield measured("values whose bits differ from a CPU's", different, f"of {expected.numel():,}", at_most=0)


def _drawing(at: Place) -> Iterator[Line]:
    """Values of fp32 that take as much memory as the copies of the other sections."""
    rows = at.sizes.copy_bytes // (4 * COLUMNS)
    where = ParamSlice((rows, COLUMNS), (0, 0), (rows, COLUMNS))
    normal_values(KEY, STD, where, at.device)
    seconds = timed(at, lambda: normal_values(KEY, STD, where, at.device), TIMES)
    yield measured("drawing a billion values", 1e9 * seconds / (rows * COLUMNS), "s")
