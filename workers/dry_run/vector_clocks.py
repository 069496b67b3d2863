"""Vector clocks: whether what one stream or thread did is certain to come before what another does next (Mattern, 1989).

An actor does one thing after the other. Its clock holds, for each actor, the last of its actions that is certain to be over. Pure; imports
no torch.
"""

import threading
from collections.abc import Mapping
from typing import Final

#: Actor → the number of its last action that is over.
Clock = Mapping["Actor", int]

#: Under this name a thread object keeps its actor.
_OF_THREAD: Final = "_shardyard_host"


class Actor:
    """A stream of the device or a thread of the host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: dict[Actor, int] = {self: 0}

    def tick(self) -> int:
        """Begin the next action. Returns its number."""
        self.clock[self] += 1
        return self.clock[self]

    def follow(self, clock: Clock) -> None:
        """Do what comes next after all that `clock` says is over."""
        for actor, time in clock.items():
            if self.clock.get(actor, 0) < time:
                self.clock[actor] = time

    def comes_after(self, actor: "Actor", time: int) -> bool:
        """Whether the action `time` of `actor` is over before what this one does next."""
        return self.clock.get(actor, 0) >= time


def host() -> Actor:
    """This thread. Threads that torch starts count as the main one, which waits while they run: autograd's do the backward pass."""
    found: Actor | None = vars(threading.current_thread()).get(_OF_THREAD)
    if found is None:
        found = vars(threading.main_thread()).setdefault(_OF_THREAD, Actor("the main thread"))
    return found


def host_of(thread: threading.Thread) -> Actor:
    """The actor of a thread that has one of its own from now on."""
    found: Actor = vars(thread).setdefault(_OF_THREAD, Actor(f"thread {thread.name}"))
    return found
