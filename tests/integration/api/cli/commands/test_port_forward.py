"""`shardyard port-forward` as a process, against a served API, a real gate, and a server of HTTP."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from harness.gates import opening_gates, process, serving
from harness.patience import PATIENCE_S

from shardyard.api.cli.commands.port_forward import Ports, read
from shardyard.api.cli.main import run
from shardyard.api.client import Client
from shardyard.api.errors import InvalidParameter

from ...conftest import Plane, running_job

#: A shell starts background jobs with SIGINT ignored, which children inherit: this one can be interrupted all the same.
CLI = ["env", "--default-signal=INT", sys.executable, "-m", "shardyard.api.cli"]


@contextmanager
def forwarding(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the address that it prints for the last port."""
    env = {**os.environ, "NO_COLOR": "1"}
    with subprocess.Popen([*CLI, "port-forward", *arguments], env=env, stderr=subprocess.PIPE, text=True) as command:
        try:
            assert command.stderr is not None
            line = command.stderr.readline()
            while line and " is port " not in line:
                line = command.stderr.readline()
            yield command, line.split()[0]
        finally:
            command.terminate()


def test_a_server_in_a_job_is_reached_by_many_connections_at_once(allowed: Plane, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "model.bin").write_bytes(content)
    with Client(allowed.url) as client, process(tmp_path) as pid, serving(tmp_path) as port:
        job, gang = running_job(allowed, client)
        with opening_gates(client, job, gang.emit, pid), forwarding(job, f"0:{port}") as (command, address):

            def fetched(_: int) -> bytes:
                return httpx2.get(f"{address}/model.bin", timeout=PATIENCE_S, trust_env=False).content

            with ThreadPoolExecutor(6) as pool:
                assert all(got == content for got in pool.map(fetched, range(6)))
            command.send_signal(2)
            assert command.wait(PATIENCE_S) == 0
        assert len(client.execs(job).items) == 1


def test_one_ctrl_c_ends_it_while_a_connection_is_open(allowed: Plane, tmp_path: Path) -> None:
    with Client(allowed.url) as client, process(tmp_path) as pid, serving(tmp_path) as port:
        job, gang = running_job(allowed, client)
        with opening_gates(client, job, gang.emit, pid), forwarding(job, f"0:{port}") as (command, address):
            local = int(address.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", local), PATIENCE_S) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(4) == b"HTTP"  # so its stream is open
                command.send_signal(2)
                assert command.wait(PATIENCE_S) == 0
            assert command.stderr is not None and not command.stderr.read()


def test_a_port_on_which_nothing_listens_yet_is_said_and_one_that_is_taken_here_is_refused(
    allowed: Plane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(allowed.url) as client, process(tmp_path) as pid, serving(tmp_path) as taken:
        job, gang = running_job(allowed, client)
        with opening_gates(client, job, gang.emit, pid):
            assert run(["port-forward", job, f"{taken}:9"]) == 1
            printed = capsys.readouterr().err
            assert "Nothing listens on port 9 there yet." in printed
            assert f"127.0.0.1:{taken} cannot be listened on" in printed


def test_what_is_refused(allowed: Plane, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["port-forward", "absent", "8888"]) == 1
    assert "There is no job 'absent'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "ports"), [("8888", Ports(8888, 8888)), ("9000:8888", Ports(9000, 8888)), ("0:1", Ports(0, 1))]
)
def test_ports_are_read(text: str, ports: Ports) -> None:
    assert read(text) == ports


@pytest.mark.parametrize("text", ["0", "65536", "80:", "x", "1:2:3", "-1", "80:70000"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read(text)
    assert refused.value.remedy
