"""Control planes of a test's own. Whatever happens, nothing of them stays."""

from collections.abc import Iterator

import pytest
from harness.control_plane import Plane


@pytest.fixture
def fresh_plane() -> Iterator[Plane]:
    """A data folder in which nothing runs yet."""
    plane = Plane()
    try:
        yield plane
    finally:
        plane.end()
