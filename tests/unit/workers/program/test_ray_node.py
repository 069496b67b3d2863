"""The folder of a Ray node: private, locked while it is used, and removed when its process was killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from shardyard.workers.program import ray_node
from shardyard.workers.program.ray_node import NodeResources, RayNode


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ray_node, "_LONGEST_ROOT", 4096)
    return tmp_path


def test_a_folder_that_no_process_uses_is_removed_by_the_next_node(root: Path) -> None:
    with ray_node._folder() as used:
        left = used.with_name(f"{used.name}x")
        (left / "r").mkdir(parents=True)
        elsewhere = root / "shardyard-ray-other"
        elsewhere.mkdir()
        with ray_node._folder() as mine:
            assert used.is_dir() and mine.is_dir() and not left.exists() and elsewhere.is_dir()
            assert mine.stat().st_mode & 0o777 == 0o700
    assert not used.exists() and not mine.exists()


def test_sockets_get_a_path_that_is_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 10)))
    with ray_node._folder() as folder:
        assert folder.parent == Path("/tmp")


def test_the_first_node_starts_a_cluster_and_the_others_join_it() -> None:
    of_first = ray_node._options("127.0.0.1", None, NodeResources(2, 1, 1 << 30))
    assert {"--head", "--port=0", "--num-cpus=2", "--num-gpus=1", "--object-store-memory=1073741824"} <= {*of_first}
    of_other = ray_node._options("10.0.0.2", "10.0.0.1:4000", NodeResources(2, 0, 1 << 30))
    assert "--address=10.0.0.1:4000" in of_other and "--node-ip-address=10.0.0.2" in of_other
    assert not {"--head", "--port=0", "--include-dashboard=false"} & {*of_other}


def test_a_node_has_an_address_when_ray_has_started_and_output_that_says_why_not(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    node = RayNode(process, tmp_path)
    assert (node.address, node.output, node.pid) == (None, "", process.pid)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "ray_current_cluster").write_text("127.0.0.1:4000\n")
    (tmp_path / "output").write_text("x" * (1 << 17) + "why")
    assert node.address == "127.0.0.1:4000" and node.output.endswith("xwhy") and len(node.output) == 1 << 16
    process.wait()
    assert node.has_ended
