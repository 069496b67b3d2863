"""Control planes for the tests. Whatever happens, nothing of them stays."""

from collections.abc import Iterator

import pytest
from harness.plane import Plane, running_plane


@pytest.fixture
def fresh_plane() -> Iterator[Plane]:
    """A data folder in which nothing runs yet."""
    plane = Plane()
    try:
        yield plane
    finally:
        plane.end()


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    """A control plane that the tests of a module share."""
    with running_plane() as plane:
        yield plane
