"""All system metrics of a job in one bucket of time, as one value of the database: names, then their numbers as columns.

Each name has the count of its samples, their lowest and highest value, and their mean, in single precision: 16 bytes.
"""

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Mapping
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
    return _parts(content)[0]


def _parts(content: bytes) -> tuple[list[str], bytes]:
    plain = zlib.decompress(content)
    (size,) = _HEAD.unpack_from(plain)
    names: list[str] = json.loads(plain[_HEAD.size : _HEAD.size + size])
    return names, plain[_HEAD.size + size :]


def unpacked(content: bytes, wanted: Callable[[str], bool] | None = None) -> dict[str, Bucket]:
    """The samples by name: all, or those of names of which `wanted` is true."""
    names, rest = _parts(content)
    numbers = array("f")
    numbers.frombytes(rest)
    numbers, many = _little(numbers), len(names)
    found = {}
    for at, name in enumerate(names):
        if wanted is None or wanted(name):
            count, low, high, mean = (numbers[column * many + at] for column in range(4))
            found[name] = Bucket(int(count), low, high, mean * count)
    return found


def merged(one: SystemBucket, other: SystemBucket) -> dict[str, Bucket]:
    """The samples of both. Neither is changed."""
    found = {name: Bucket(**vars(bucket)) for name, bucket in one.items()}
    for name, bucket in other.items():
        if name in found:
            found[name].add(bucket)
        else:
            found[name] = Bucket(**vars(bucket))
    return found


def _little(numbers: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        numbers = array("f", numbers)
        numbers.byteswap()
    return numbers
