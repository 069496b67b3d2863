"""Room for a test process's variables, so that adding one moves nothing that another thread reads.

glibc's setenv (stdlib/setenv.c, `__add_to_environ`) moves the array of variables when it adds a name, and frees the one in which a getenv
of another thread may be: SIGSEGV. Tests add variables while a server of theirs runs in a thread, whose libraries read some in C.
"""

import ctypes
import os
import platform
from collections.abc import Callable
from typing import Any, Final

#: Variables that are added before it moves.
_ROOM: Final = 1024


class _Array:
    """glibc's `environ`, in a place with room. A library that adds a variable itself moves it: then it is given another one."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._environ = ctypes.c_void_p.in_dll(libc, "environ")
        self._find = libc.getenv
        self._find.restype, self._find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        self._kept: list[Any] = []  # what C points to and never frees
        self._pointers: ctypes.Array[ctypes.c_void_p] = (ctypes.c_void_p * 0)()

    def add(self, name: bytes, value: bytes) -> bool:
        """False if there is such a name: it can be replaced where it is."""
        if self._find(name) is not None:
            return False
        if self._environ.value != ctypes.addressof(self._pointers) or self._pointers[-2:] != [None, None]:
            self._move()
        self._kept.append(ctypes.create_string_buffer(name + b"=" + value))
        self._pointers[self._pointers[:].index(None)] = ctypes.addressof(self._kept[-1])
        return True

    def _move(self) -> None:
        there = ctypes.cast(self._environ, ctypes.POINTER(ctypes.c_void_p))
        taken = next(number for number in range(1 << 20) if not there[number])
        self._pointers = (ctypes.c_void_p * (taken + _ROOM))(*there[:taken])
        self._kept.append(self._pointers)
        self._environ.value = ctypes.addressof(self._pointers)


def steady() -> None:
    """Names that `os.environ` gets from now on are written behind the others, where libc is glibc."""
    if platform.libc_ver()[0] != "glibc":
        return
    array = _Array()
    replace: Callable[[bytes, bytes], None] = os.putenv

    def put(name: bytes, value: bytes) -> None:
        if not array.add(os.fsencode(name), os.fsencode(value)):
            replace(name, value)

    os.putenv = put  # where `os.environ` looks for it
