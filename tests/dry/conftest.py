"""One process for the dry runs of a test process. Without a C++ compiler there is no fake device, and the tests here skip."""

from collections.abc import Iterator

import pytest
from harness.dry_run import DryRunner, running_dry_runner

from shardyard.strategies import cxx_compiler


@pytest.fixture(scope="session")
def dry() -> Iterator[DryRunner]:
    if cxx_compiler.found() is None:
        pytest.skip("a dry run compiles its fake device: no C++ compiler here")
    with running_dry_runner() as runner:
        yield runner
