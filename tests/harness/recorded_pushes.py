"""The recorded orders of several parameter servers, put into one that a single process can replay."""

from collections.abc import Iterator, Sequence

#: Kind (push, pull, or leave: it was gone), worker, and its clock: the number of its pushes, this one included.
Line = tuple[str, int, int]


def in_order(records: Sequence[Sequence[Line]]) -> Iterator[tuple[int, Line]]:
    """Every line with the number of its server. A push comes when its worker has pulled from all servers after its push before.

    Where no worker pulls before its first push, it has the first values of its own.
    """
    left = [list(record) for record in records]
    pulled: dict[tuple[int, int], int] = {}
    asks_first = any(line[0] == "pull" and line[2] == 0 for record in records for line in record)
    while any(left):
        before = sum(map(len, left))
        for server, lines in enumerate(left):
            while lines:
                kind, worker, clock = lines[0]
                if kind == "push" and (asks_first or clock > 1) and pulled.get((worker, clock - 1), 0) < len(records):
                    break
                if kind == "pull":
                    pulled[worker, clock] = pulled.get((worker, clock), 0) + 1
                yield server, lines.pop(0)
        assert sum(map(len, left)) < before, "the records are of no possible run"


def furthest_ahead(record: Sequence[Line], workers: int) -> int:
    """The most clocks by which a pull was ahead of the slowest worker that was there."""
    clocks, most = dict.fromkeys(range(workers), 0), 0
    for kind, worker, clock in record:
        clocks[worker] += kind == "push"
        assert clock == clocks[worker]
        if kind == "leave":
            del clocks[worker]
        if kind == "pull":
            most = max(most, clock - min(clocks.values()))
    return most


def behind(record: Sequence[Line], workers: int) -> int:
    """The most pushes of other workers that came between a worker's pull and its next push."""
    seen, pushes, most = [0] * workers, 0, 0
    for kind, worker, _ in record:
        if kind == "pull":
            seen[worker] = pushes
        else:
            most = max(most, pushes - seen[worker])
            pushes += 1
    return most


def met(record: Sequence[Line], clock: int, workers: int) -> bool:
    """Whether every pull at `clock` came after all pushes of that clock, and before all of the next one."""
    pulls = [at for at, line in enumerate(record) if line[0] == "pull" and line[2] == clock]
    last = max((at for at, line in enumerate(record) if line[0] == "push" and line[2] <= clock), default=-1)
    later = [at for at, line in enumerate(record) if line[0] == "push" and line[2] == clock + 1]
    return len(pulls) == workers and last < min(pulls) and max(pulls) < min(later, default=len(record))
