"""Ray's command as a process of its own: it does not outlive its parent, and takes no port that another Ray may have."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.program import ray_start


def test_no_port_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ray_start.HOOK, "x")
    parameters = SimpleNamespace(ray_client_server_port=10001, dashboard_agent_listen_port=52365)
    ray_start.adjust(parameters, True)
    assert (parameters.ray_client_server_port, parameters.dashboard_agent_listen_port) == (None, 0)
    assert ray_start.HOOK not in os.environ


def test_it_does_not_begin_without_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, ray_start.__file__, "1", "--version"], capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.full
def test_it_is_rays_command_and_leads_a_group() -> None:
    command = [sys.executable, ray_start.__file__, str(os.getpid()), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0 and "version" in done.stdout, done.stderr
