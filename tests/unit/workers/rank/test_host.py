import os
import socket
import tempfile
from pathlib import Path

import pytest

from shardyard.workers.program.program import ENTRY
from shardyard.workers.rank import host
from shardyard.workers.storage.upload_folder import upload_folder

#: The entry of trainers that run this package's own loop.
OWN_LOOP = ""


def test_a_rank_that_starts_removes_what_killed_exports_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(host, "connect", lambda *_: socket.socket())
    with upload_folder() as used:
        left = used.with_name(f"{used.name[:-8]}killed00")
        left.mkdir()
        (left / "model").touch()
        host.warm_fork_server()
        assert [*tmp_path.iterdir()] == [used]


def test_a_trainer_gets_no_variable_of_ray_and_no_device_that_it_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("COLOUR", "blue")
    env = host.trainer_environment("cpu", OWN_LOOP)
    assert (env["COLOUR"], env["CUDA_VISIBLE_DEVICES"], env["OMP_NUM_THREADS"]) == ("blue", "", "1")
    assert not [name for name in env if name.startswith("RAY_")]


def test_what_a_job_adds_wins_over_the_machine_but_not_over_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "gpus", lambda: ["3"])
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    given = {"NCCL_DEBUG": "INFO", "PYTORCH_ALLOC_CONF": "max_split_size_mb:512", "CUDA_VISIBLE_DEVICES": "0"}
    env = host.trainer_environment("cuda", OWN_LOOP, given)
    assert (env["NCCL_DEBUG"], env["CUDA_VISIBLE_DEVICES"]) == ("INFO", "3")
    assert env["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:512"


def test_gpus_have_the_numbers_of_ray_and_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's own order begins with the fastest model."""
    monkeypatch.setattr(host, "gpus", lambda: ["3"])
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert host.trainer_environment("cuda", OWN_LOOP)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "CUDA_DEVICE_ORDER" not in host.trainer_environment("cpu", OWN_LOOP)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert host.trainer_environment("cuda", OWN_LOOP)["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


def test_a_job_chooses_its_threads_on_cpus_and_has_one_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # of the actor
    env = host.trainer_environment("cpu", OWN_LOOP, {"MKL_NUM_THREADS": "4"})
    assert (env["MKL_NUM_THREADS"], env["OMP_NUM_THREADS"], env["OPENBLAS_NUM_THREADS"]) == ("4", "1", "1")


@pytest.mark.parametrize("name", ["", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_segments_of_torchs_allocator_grow_unless_the_environment_says_otherwise(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "gpus", lambda: ["3"])
    for one in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(one, raising=False)
    own = {name: "max_split_size_mb:512"} if name else {}
    for one, value in own.items():
        monkeypatch.setenv(one, value)
    env = host.trainer_environment("cuda", OWN_LOOP)
    found = {one: value for one, value in env.items() if one.startswith("PYTORCH_")}
    assert found == (own or {"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    assert (
        env["CUDA_VISIBLE_DEVICES"] == "3"
        and "PYTORCH_ALLOC_CONF" not in host.trainer_environment("cpu", OWN_LOOP).keys() - own
    )


def test_a_users_program_keeps_the_default_of_torchs_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes may share tensors on GPUs, which growing segments allow only where a container permits `pidfd_getfd`."""
    monkeypatch.setattr(host, "gpus", lambda: ["3"])
    for one in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(one, raising=False)
    assert not [name for name in host.trainer_environment("cuda", ENTRY) if name.startswith("PYTORCH_")]
    assert host.trainer_environment("cuda", ENTRY, {"PYTORCH_ALLOC_CONF": "x"})["PYTORCH_ALLOC_CONF"] == "x"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_that_is_listened_on_belongs_to_no_other_process(address: str) -> None:
    try:
        listener = host.listen(address)
    except OSError:
        pytest.skip(f"this machine has no {address}")
    with listener, socket.socket(listener.family) as other:
        assert listener.getsockname()[0] == address
        with pytest.raises(OSError):
            other.bind(listener.getsockname()[:2])


def test_the_interface_of_an_address() -> None:
    assert host.network_interface("127.0.0.1") == "lo"
    assert host.network_interface("192.0.2.1") is None


def test_fork_servers_lie_in_the_heads_folder_else_in_one_of_user_and_raylet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(host.NODE_FOLDER, str(tmp_path))
    assert host.fork_root() == tmp_path
    monkeypatch.delenv(host.NODE_FOLDER)
    monkeypatch.setenv("RAY_RAYLET_PID", "7")
    assert host.fork_root().name == f"shardyard-{os.getuid()}-7"
