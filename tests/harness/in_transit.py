"""Messages that are in transit while a rank computes, counted in the order of its calls: no clock decides."""

from typing import Any


def sent_during_passes(parallel: Any) -> list[int]:
    """Gets one number per bucket of gradients that is sent: whether that is before the step's passes have ended."""
    order, train = _data(parallel)._order, parallel.runner.train
    send, running, started = order._send, [False], list[int]()

    def sent(number: int) -> None:
        started.append(int(running[0]))
        send(number)

    def running_train(*batch: Any) -> Any:
        running[0] = True
        try:
            return train(*batch)
        finally:
            running[0] = False

    order._send, parallel.runner.train = sent, running_train
    return started


def coming_at_blocks(parallel: Any) -> list[int]:
    """Gets one number per block that begins and had to wait for its values: the messages with others' that are still to come."""
    data, coming = _data(parallel), list[int]()
    receiver = getattr(data, "_gathers", data)
    missing = getattr(receiver, "_coming", getattr(receiver, "_pulled", None))
    if missing is None:
        return coming
    settle = receiver.settle

    def settled(needed: Any = None) -> None:
        settle(needed)
        if needed is not None:
            coming.append(len(missing))

    receiver.settle = settled
    return coming


def _data(parallel: Any) -> Any:
    """The data strategy, also that of tied ends."""
    return getattr(parallel.data, "_data", parallel.data)
