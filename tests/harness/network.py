"""A bridge on this machine, and network namespaces behind it whose cables can be pulled. Needs root and `ip`."""

import os
import random
import shutil
import subprocess


class Network:
    """Addresses 10.a.b.n: the machine itself is n = 1, the namespaces are 2, 3, …"""

    def __init__(self) -> None:
        dice = random.Random()
        self._mark = f"sy{dice.randrange(16**5):05x}"  # an interface's name has at most 15 characters
        self._net = f"10.{dice.randrange(64, 250)}.{dice.randrange(250)}"
        self._made: list[int] = []
        self.host = f"{self._net}.1"
        _ip("link", "add", self._mark, "type", "bridge")
        _ip("addr", "add", f"{self.host}/24", "dev", self._mark)
        _ip("link", "set", self._mark, "up")

    @staticmethod
    def possible() -> bool:
        """Whether this process may make one."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            return False
        name = f"sytry{os.getpid()}"
        tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
        if tried.returncode:
            return False
        _ip("netns", "del", name)
        return True

    def add(self, number: int) -> str:
        """One more namespace; returns its address."""
        name, cable, address = self._name(number), self._cable(number), f"{self._net}.{number + 1}"
        _ip("netns", "add", name)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._made.append(number)
        _ip("link", "set", cable, "master", self._mark, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", "eth0", "up")
        return address

    def inside(self, number: int) -> list[str]:
        """What makes a command run within the namespace."""
        return ["ip", "netns", "exec", self._name(number)]

    def cut(self, number: int) -> None:
        _ip("link", "set", self._cable(number), "down")

    def join(self, number: int) -> None:
        _ip("link", "set", self._cable(number), "up")

    def end(self) -> None:
        """Remove all of it; call it when no process is left within."""
        for number in self._made:
            _ip("link", "del", self._cable(number))
            _ip("netns", "del", self._name(number))
        _ip("link", "del", self._mark)

    def _name(self, number: int) -> str:
        return f"{self._mark}-{number}"

    def _cable(self, number: int) -> str:
        return f"{self._mark}v{number}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
