import os
from collections.abc import Iterator

import pytest

from shardyard.workers import slots


@pytest.fixture
def fds() -> Iterator[list[int]]:
    """Empty slots of snapshot memory."""
    made = slots.make()
    yield made
    for fd in made:
        os.close(fd)
