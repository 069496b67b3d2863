"""Control planes of a test's own. Whatever happens, nothing of them stays."""

from collections.abc import Iterator

import pytest
from harness.control_plane import ControlPlane


@pytest.fixture
def fresh_plane() -> Iterator[ControlPlane]:
    """A data folder in which nothing runs yet."""
    plane = ControlPlane()
    try:
        yield plane
    finally:
        plane.end()
