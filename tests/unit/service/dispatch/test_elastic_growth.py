"""A gang whose devices must be together grows only where it could be placed as a whole."""

from pathlib import Path
from typing import Any

from shardyard.service.dispatch.elastic_growth import _are_together, _Takes, _takes, _without
from shardyard.service.ids import gang_name
from shardyard.service.settings import Settings


def node(name: str, model: str, used: float, gang: float) -> dict[str, Any]:
    shares = [{"gang": gang_name("j-1", 2), "cpu": 0.0, "gpu": gang}] if gang else []
    place = {"zone": "", "domain": "", "image": "", "gpu_model": model}
    return {"id": name, "cpu": 8.0, "cpu_used": 0.0, "gpu": 8.0, "gpu_used": used, "gangs": shares, **place}


def grows(folder: Path, more: int, *nodes: dict[str, Any], **resources: float) -> bool:
    row: Any = {"id": "j-1", "world_size": 4, "tensor": 1, "device": "cuda", "spec": {"resources": resources}}
    machines = [_without(one, "j-1", Settings(data_dir=folder), ()) for one in nodes]  # type: ignore[arg-type]
    return _are_together(row, more, machines, {"cuda": 4, "cpu": 16})


def test_free_gpus_of_another_model_are_none_to_grow_into(tmp_path: Path) -> None:
    own, other = node("n", "H100", 8, 4), node("m", "A100", 0, 0)
    assert not grows(tmp_path, 8, own, other)
    assert grows(tmp_path, 4, own, other), "as a whole it has room on the other model"
    assert grows(tmp_path, 4, node("n", "H100", 4, 4), other)
    assert grows(tmp_path, 8, own, node("m", "H100", 0, 0))
    assert grows(tmp_path, 4, node("n", "H100", 4, 4), cpus_per_gpu=1.0), "the cores that are held are its own"


def test_ranks_on_cpus_take_cores_and_those_on_gpus_if_the_spec_says_so() -> None:
    def takes(device: str, **resources: float) -> _Takes:
        return _takes({"device": device, "spec": {"resources": resources}})  # type: ignore[arg-type]

    assert takes("cpu") == takes("cpu", cpus_per_gpu=2.0) == _Takes("cpu", True)
    assert [takes("cuda"), takes("cuda", cpus_per_gpu=2.0)] == [_Takes("cuda", False), _Takes("cuda", True)]
