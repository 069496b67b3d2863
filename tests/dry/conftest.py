"""One process for the dry runs of a test process. Without a C++ compiler there is no fake device, and the tests here skip."""

from collections.abc import Iterator

import pytest
from harness.dry_run import DryRunner, running_dry_runner
from harness.fake_device import FakeDevice, running_fake_device

from shardyard.strategies import cxx_compiler


@pytest.fixture(scope="session")
def dry() -> Iterator[DryRunner]:
    _skip_without_compiler()
    with running_dry_runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def device() -> Iterator[FakeDevice]:
    _skip_without_compiler()
    with running_fake_device() as device:
        yield device


def _skip_without_compiler() -> None:
    if cxx_compiler.found() is None:
        pytest.skip("the fake device is compiled: no C++ compiler here")
