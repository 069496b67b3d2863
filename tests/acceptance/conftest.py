"""Control planes for the tests. Whatever happens, nothing of them stays."""

from collections.abc import Iterator

import pytest
from harness.bucket import Buckets
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
def plane(buckets: Buckets) -> Iterator[Plane]:
    """A control plane that the tests of a module share; its workers have the credentials of a bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in buckets.environment.items():
            patch.setenv(name, value)
        with running_plane() as plane:
            yield plane
