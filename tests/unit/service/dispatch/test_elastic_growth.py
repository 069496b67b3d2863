"""A gang whose devices must be together grows only where it could be placed as a whole."""

from pathlib import Path
from typing import Any

from shardyard.service.dispatch.elastic_growth import _size, _Takes, _takes, _without
from shardyard.service.ids import gang_name
from shardyard.service.settings import Settings


def node(name: str, model: str, used: float, gang: float, cores: float = 0.0) -> dict[str, Any]:
    shares = [{"gang": gang_name("j-1", 2), "cpu": cores, "gpu": gang}] if gang else []
    place = {"zone": "", "domain": "", "image": "", "gpu_model": model}
    used_of = {"cpu_used": cores, "gpu_used": used}
    return {"id": name, "cpu": 8.0, "gpu": 8.0, "gangs": shares, **used_of, **place}


def size(
    folder: Path, sizes: tuple[int, ...], *nodes: dict[str, Any], avoided: tuple[str, ...] = (), **spec: Any
) -> int | None:
    """The size to which a job of four ranks grows. 16 ranks' cores are held beside GPUs, and each GPU of a gang on a node."""
    row: Any = {"id": "j-1", "world_size": 4, "tensor": 1, "device": "cuda", "spec": spec}
    row["elastic"] = [{"world_size": one} for one in (*sizes, 4)]
    settings = Settings(data_dir=folder)
    machines = [_without(one, "j-1", settings, avoided) for one in nodes]  # type: ignore[arg-type]
    spares = spec.get("policy", {}).get("spares", 0)
    return _size(row, machines, {"cuda": 4 + spares, "cpu": 16}, settings.cpu_ranks_per_core)


def grows(folder: Path, more: int, *nodes: dict[str, Any], **resources: float) -> bool:
    return size(folder, (4 + more,), *nodes, resources=resources) == 4 + more


def test_free_gpus_of_another_model_are_none_to_grow_into(tmp_path: Path) -> None:
    own, other = node("n", "H100", 8, 4), node("m", "A100", 0, 0)
    assert not grows(tmp_path, 8, own, other)
    assert grows(tmp_path, 4, own, other), "as a whole it has room on the other model"
    assert grows(tmp_path, 4, node("n", "H100", 4, 4), other)
    assert grows(tmp_path, 8, own, node("m", "H100", 0, 0))


def test_the_cores_that_are_held_beside_a_jobs_own_gpus_are_its_own(tmp_path: Path) -> None:
    own = node("n", "H100", 4, 4, cores=4.0)
    assert grows(tmp_path, 4, own, cpus_per_gpu=1.0)
    assert not grows(tmp_path, 4, own, cpus_per_gpu=1.5), "eight ranks need twelve cores"


def test_a_job_on_a_cordoned_node_grows_only_where_all_of_it_has_room_elsewhere(tmp_path: Path) -> None:
    own, other = node("n", "H100", 4, 4), node("m", "H100", 2, 0)
    assert size(tmp_path, (12, 10, 6), own, other) == 12
    assert size(tmp_path, (12, 10, 6), own, other, avoided=("n",)) == 6
    assert size(tmp_path, (12, 10), own, other, avoided=("n",)) is None


def test_a_job_with_spares_grows_where_both_have_room(tmp_path: Path) -> None:
    for spares, found in ((0, 8), (1, 7), (2, None)):
        own = node("n", "H100", 4 + spares, 4 + spares)
        assert size(tmp_path, (8, 7), own, policy={"spares": spares}) == found


def test_ranks_on_cpus_take_cores_and_those_on_gpus_if_the_spec_says_so() -> None:
    def takes(device: str, **resources: float) -> _Takes:
        return _takes({"device": device, "spec": {"resources": resources}})  # type: ignore[arg-type]

    assert takes("cpu") == takes("cpu", cpus_per_gpu=2.0) == _Takes("cpu", True)
    assert [takes("cuda"), takes("cuda", cpus_per_gpu=2.0)] == [_Takes("cuda", False), _Takes("cuda", True)]
