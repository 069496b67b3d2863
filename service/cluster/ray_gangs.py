"""Gangs on a Ray cluster: their supervisors, found by name, what is left of them, and the tasks of checkpoint operations."""

from typing import Any

from ...workers.messages.gang_spec import GangSpec
from ...workers.supervisor.actor import Supervisor
from ...workers.supervisor.journal import journal
from ...workers.supervisor.ranks.group_table import living_groups
from ...workers.supervisor.ranks.placement_group import NAMESPACE, rank_actors, remove_actors_and_group
from ...workers.tasks.checkpoint_task import Operation, perform
from .ray_connection import inside, remote
from .supervisor_handle import SupervisorHandle


def make_supervisor(spec: GangSpec) -> SupervisorHandle:
    """The gang's supervisor, which is started unless it exists."""
    options = {
        "name": spec.name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_restarts": -1,  # a restarted supervisor continues from its journal
    }
    return SupervisorHandle(remote(Supervisor).start(spec.to_json(), **options))


def begin_operation(operation: Operation, node: str | None) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options: dict[str, Any] = {
        "name": f"{operation.kind} {operation.id}",
        "num_cpus": 0,
        "max_retries": 0,  # the service decides on retries
    }
    if node is not None:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
    alone = remote(perform, max_calls=1)  # a new worker per task, so that torch's memory is freed with it
    return alone.start(operation, **options)


def end_operation(task: Any) -> None:
    import ray

    ray.cancel(task, force=True)


def find_supervisor(gang: str) -> SupervisorHandle | None:
    """The living supervisor of a gang; None when there is none."""
    import ray

    try:
        return SupervisorHandle(ray.get_actor(gang, namespace=NAMESPACE))
    except ValueError:
        return None


def gang_names() -> list[str]:
    return inside(_gang_names_inside)


def _gang_names_inside() -> list[str]:
    from ray.util import list_named_actors

    names = {actor["name"].partition("-rank-")[0] for actor in list_named_actors(all_namespaces=True) if _ours(actor)}
    return sorted(names | {group["name"] for group in living_groups() if group["name"].startswith(f"{NAMESPACE}-")})


def _ours(actor: dict[str, str]) -> bool:
    return actor.get("namespace") == NAMESPACE


def remove_gang(gang: str) -> None:
    inside(_remove_gang_inside, gang)


def _remove_gang_inside(gang: str) -> None:
    supervisor = find_supervisor(gang)
    # The supervisor first: one that lives would replace the ranks.
    remove_actors_and_group(gang, [*([] if supervisor is None else [supervisor.actor]), *rank_actors(gang)])
    journal.erase(gang)
