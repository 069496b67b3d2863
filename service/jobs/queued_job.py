"""A job as the queue sees it, made of its spec or of its row. Needs no database."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..policies.queue import Waiting
from ..spec import AnySpec


def waiting(spec: AnySpec) -> Waiting:
    """The job without an id, in the size of its spec."""
    wants = spec.resources
    job = Waiting("", spec.world_size, spec.together, spec.device, spec.policy.spares)
    return replace(job, gpu=wants.gpu or "", within=wants.within, cpus=wants.cpus_per_gpu, image=spec.image)


def wants(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Which nodes the job may use together, and their cores for it. `spec`: as a job's row stores it."""
    resources = spec.get("resources", {})
    cpus = resources.get("cpus_per_gpu", 0.0)
    image = (spec.get("env") or {}).get("image") or ""
    return {"gpu": resources.get("gpu") or "", "within": resources.get("within"), "cpus": cpus, "image": image}
