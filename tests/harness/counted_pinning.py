"""A pinning that counts, and that checks what CUDA would only do wrong: memory must be mapped when it is registered and unregistered."""

import os
from pathlib import Path


class CountedPinning:
    """`code` and `unregister_code`: what the calls return. `registered`: address → size of what is registered now."""

    def __init__(self, code: int = 0, unregister_code: int = 0) -> None:
        self.code, self.unregister_code = code, unregister_code
        self.registered: dict[int, int] = {}
        self.registrations = self.unregistrations = 0

    def register(self, address: int, size: int) -> int:
        self.registrations += 1
        assert _is_mapped(address, size)
        assert address not in self.registered, "registered twice"
        if not self.code:
            self.registered[address] = size
        return self.code

    def unregister(self, address: int) -> int:
        self.unregistrations += 1
        assert _is_mapped(address, self.registered[address]), "unmapped before it was unregistered"
        if not self.unregister_code:
            del self.registered[address]
        return self.unregister_code


def mappings_of(fd: int) -> list[tuple[int, int]]:
    """First address and size of each mapping of this file in this process."""
    inode = os.fstat(fd).st_ino
    return [(start, end - start) for start, end, of in _maps() if of == inode]


def _maps() -> list[tuple[int, int, int]]:
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends, _, _, _, inode, *_ = line.split()
        start, end = (int(address, 16) for address in ends.split("-"))
        found.append((start, end, int(inode)))
    return found


def _is_mapped(address: int, size: int) -> bool:
    return any(start <= address and address + size <= end for start, end, inode in _maps() if inode)
