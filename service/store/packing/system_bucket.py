"""All system metrics of a job in one bucket of time, as one value of the database: names, then their numbers as columns.

Each name has the count of its samples, their lowest and highest value, and their mean, in single precision: 16 bytes.
"""

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Collection, Mapping
from typing import Final

from .metric_curve import Bucket

#: Name → the samples of a bucket.
SystemBucket = Mapping[str, Bucket]

_HEAD: Final = struct.Struct("<I")
#: Repeated names become small at the fastest level already.
_LEVEL: Final = 1


def packed(buckets: SystemBucket) -> bytes:
    """The text of these samples."""
    names = json.dumps(list(buckets), separators=(",", ":")).encode()
    numbers = array("f", [one.count for one in buckets.values()])
    numbers.extend(one.low for one in buckets.values())
    numbers.extend(one.high for one in buckets.values())
    numbers.extend(one.total / one.count for one in buckets.values())
    return zlib.compress(_HEAD.pack(len(names)) + names + _little(numbers).tobytes(), _LEVEL)


def names_of(content: bytes) -> list[str]:
    """The names that the bucket has."""
    names: list[str] = json.loads(_parts(content)[0])
    return names


def _parts(content: bytes) -> tuple[bytes, bytes]:
    """The names, as JSON, and their numbers."""
    plain = zlib.decompress(content)
    (size,) = _HEAD.unpack_from(plain)
    return plain[_HEAD.size : _HEAD.size + size], plain[_HEAD.size + size :]


class Unpacking:
    """Unpacks the buckets of one job. A large gang has 10,000 names, mostly the same in all buckets: they are parsed once."""

    def __init__(self, wanted: Callable[[list[str]], Collection[str]] | None = None) -> None:
        """`wanted` returns those of a bucket's names that are unpacked; None: all."""
        self._wanted = wanted
        self._head: bytes | None = None
        self._many = 0
        self._places: list[tuple[int, str]] = []

    def of(self, content: bytes) -> dict[str, Bucket]:
        """The samples of a bucket by name."""
        head, rest = _parts(content)
        if head != self._head:
            names: list[str] = json.loads(head)
            wanted = set(names if self._wanted is None else self._wanted(names))
            self._places = [(at, name) for at, name in enumerate(names) if name in wanted]
            self._head, self._many = head, len(names)
        numbers = array("f")
        numbers.frombytes(rest)
        numbers, many = _little(numbers), self._many
        found = {}
        for at, name in self._places:
            count, low, high, mean = numbers[at], numbers[many + at], numbers[2 * many + at], numbers[3 * many + at]
            found[name] = Bucket(int(count), low, high, mean * count)
        return found


def merge(into: dict[str, Bucket], other: SystemBucket) -> None:
    """Add the samples of `other`, which is not changed."""
    for name, bucket in other.items():
        mine = into.get(name)
        if mine is None:
            into[name] = Bucket(bucket.count, bucket.low, bucket.high, bucket.total)
        else:
            mine.add(bucket)


def _little(numbers: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        numbers = array("f", numbers)
        numbers.byteswap()
    return numbers
