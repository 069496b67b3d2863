"""Which parameter server holds which parameter: loads in bytes are as even as whole parameters allow. Imports no torch.

The largest parameter that is left goes to the server with the least so far (Graham 1969, "Bounds on multiprocessing timing anomalies":
longest processing time first). The fullest server then holds at most 4/3 − 1/(3k) times what the best assignment to k servers gives it.
All ranks compute the same assignment, without a message.
"""

from collections.abc import Sequence
from typing import Final

#: fp64 numbers of a worker's request to a server, where workers have clocks of their own (`stale_messages.py`).
REQUEST_NUMBERS: Final = 9


def assign(sizes: Sequence[int], servers: int) -> list[int]:
    """The server of each parameter, by the parameters' sizes. Of equal parameters the first is first, of equal servers the lowest."""
    loads = [0] * servers
    found = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        found[number] = loads.index(min(loads))
        loads[found[number]] += sizes[number]
    return found


def held(sizes: Sequence[int], servers: int) -> list[list[int]]:
    """The sizes of the parameters that each server holds."""
    found: list[list[int]] = [[] for _ in range(servers)]
    for size, server in zip(sizes, assign(sizes, servers), strict=True):
        found[server].append(size)
    return found
