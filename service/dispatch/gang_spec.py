"""The gang of a job's attempt, from the job's row."""

from dataclasses import replace
from typing import Any

from sqlalchemy.engine import RowMapping

from ...strategies.context_axes import context_axes
from ...strategies.layout import Layout, own_clocks
from ...strategies.zero_plus_plus_axes import zero_plus_plus_axes
from ...workers.messages.gang_spec import GangSpec, LossSpikeLimits, StragglerLimits
from ...workers.program.program import ENTRY, Code, FilesCache, Mount, Program, RayShare, argv, python_of
from ...workers.spec import Run, TrainSpec
from ...workers.storage.uri import below
from ..jobs import artifacts, code_archives, elastic
from ..settings import Settings


def neighbours(layout: Layout) -> tuple[int, ...]:
    """Sizes of the groups of consecutive ranks that exchange most: stages, windows of rings, sharding, expert and context groups, and
    those of ZeRO++ inside a node.
    """
    sizes = {layout.world_size // layout.pipeline, layout.context * layout.tensor, layout.expert * layout.tensor}
    sizes |= {layout.shard * layout.tensor} if layout.shard else set()
    sizes |= {context_axes(layout)["outer_ring"][1] * layout.tensor} if layout.ring_window else set()
    sizes |= {size * layout.tensor for size, apart in zero_plus_plus_axes(layout).values() if apart == 1}
    return tuple(sorted((size for size in sizes if 1 < size < layout.world_size), reverse=True))


def gang_spec(
    job: RowMapping,
    attempt: RowMapping,
    settings: Settings,
    avoided: tuple[str, ...] = (),
    preflight: bool = False,
    images: tuple[str, ...] = (),
) -> GangSpec:
    """What the cluster is to run, and which nodes it must avoid. `preflight`: whether a training times its collectives first.

    `images`: names of the images that nodes of the cluster have, also those that are away.
    """
    found = replace(_gang(job, attempt, avoided), sample_s=settings.system_s)
    found = found if found.image else replace(found, other_images=images)
    if "command" in job["spec"]:
        return replace(found, run=_program(job, attempt, settings).to_json(), entry=ENTRY)
    train = TrainSpec.model_validate(job["spec"]["train"])
    run = Run(
        job=job["id"],
        attempt=attempt["number"],
        train=train,
        device=attempt["device"],
        preflight=preflight,
        checkpoints=train.checkpoints(settings.storage, job["id"]),
        cache=settings.cache,
        scratch=settings.scratch,
        resume=job["resume"],
    )
    return replace(
        found,
        run=run.model_dump(mode="json", by_alias=True),
        neighbours=neighbours(train.layout),
        own_clocks=train.layout.data if own_clocks(train.layout) and train.snapshot.every != 0 else 0,
    )


def _program(job: RowMapping, attempt: RowMapping, settings: Settings) -> Program:
    spec = job["spec"]
    saves = spec.get("checkpoint") or {}
    found = Program(
        job["id"],
        argv(spec["command"]),
        attempt["number"],
        spec.get("cwd"),
        max_restarts=spec.get("policy", {}).get("max_repairs", 0),
        per_node=spec.get("command_per") == "node" or spec.get("ray") is not None,
        tensorboard=spec.get("tensorboard"),
        python=python_of(spec.get("env")),
        conda=(spec.get("env") or {}).get("conda"),
        checkpoints=below(saves.get("uri") or settings.storage, job["id"]),
        keep=saves.get("keep", 2),
        resume=job["resume"],
        ray=_ray(spec, below(settings.storage, job["id"])),
        artifacts=artifacts.storage(settings, job["id"]),
        mounts=tuple(Mount(target, source) for target, source in spec.get("files", {}).items()),
        files=FilesCache(settings.files(job["id"]), int(settings.files_cache_gib * 2**30))
        if spec.get("files")
        else None,
        cache=str(settings.cache),
    )
    if job["code"] is None:
        return found
    return replace(found, code=Code(code_archives.address(settings, job["code"]), spec["code"]["archive"]))


def _ray(spec: dict[str, Any], storage: str) -> RayShare | None:
    if spec.get("ray") is None:
        return None
    cpus = spec.get("resources", {}).get("cpus_per_gpu", 0.0)
    return RayShare(spec["ray"]["object_store_mb"] << 20, cpus, storage)


def _gang(job: RowMapping, attempt: RowMapping, avoided: tuple[str, ...]) -> GangSpec:
    """What gangs of all kinds of jobs have in common; `run` is still empty."""
    policy, resources = job["spec"].get("policy", {}), job["spec"].get("resources", {})
    return GangSpec(
        name=attempt["gang"],
        run={},
        world_size=job["world_size"],
        tensor=job["tensor"],
        device=attempt["device"],
        max_repairs=policy.get("max_repairs", 0),
        hang_timeout_s=policy.get("hang_timeout_s"),
        straggler=StragglerLimits(**policy["straggler"]) if policy.get("straggler") else None,
        loss_spike=LossSpikeLimits(**policy["loss_spike"]) if policy.get("loss_spike") else None,
        avoided=avoided,
        gpu=resources.get("gpu") or "",
        within=resources.get("within"),
        image=(job["spec"].get("env") or {}).get("image") or "",
        env=resources.get("env") or {},
        cpus_per_gpu=resources.get("cpus_per_gpu", 0.0),
        spares=policy.get("spares", 0),
        secrets=bool(job["spec"].get("secrets")),
        elastic_grace_s=elastic.grace_s(job) if elastic.may_shrink(job) else None,
    )
