"""A gang's placement group, all or nothing, and a rank actor for each device of it.

All names are made from the gang's, so that what is left of a gang is found by its name.
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final

from ...messages.gang_spec import GangSpec
from ...rank.actor import Rank
from ..policies.topology import IMAGE_LABEL, LABELS, MODEL_LABEL, Place, by_place, none_of

NAMESPACE: Final = "shardyard"


class NoRoom(TimeoutError):
    """The cluster has no place for ranks."""


def rank_name(gang: str, rank: int, generation: int = 1) -> str:
    """Name of a rank's actor. Each generation has other names, because Ray does not free a dead actor's name at once."""
    return f"{gang}-rank-{rank}" + (f".{generation}" if generation > 1 else "")


def spare_name(gang: str, mark: str) -> str:
    """Name of a spare, with the prefix of ranks, so that it is found with the gang's ranks."""
    return f"{gang}-rank-spare-{mark}"


def placement(spec: GangSpec) -> list[dict[str, float]]:
    """Bundles of the gang's placement group: one per tensor group, which a bundle keeps on one node, then one per spare."""
    one = spec.resources
    bundle = {name: amount * spec.tensor for name, amount in one.items()}
    groups = [dict(bundle) for _ in range(spec.world_size // spec.tensor)]
    return groups + [dict(one) for _ in range(spec.spares)]


def existing(spec: GangSpec) -> Any:
    """The gang's placement group, which may not be ready yet; None if there is none."""
    from ray.util.placement_group import get_placement_group

    with contextlib.suppress(ValueError):
        return get_placement_group(spec.name)
    return None


def reserve(spec: GangSpec, where: Sequence[Mapping[str, str]] = ()) -> Any:
    """A new placement group of the gang. `where`: a label selector for each tensor group; none: they may be on any node."""
    from ray.util.placement_group import placement_group

    wanted = label_selectors(spec, where)
    chosen = wanted if any(wanted) else None
    return placement_group(placement(spec), "PACK", name=spec.name, lifetime="detached", bundle_label_selector=chosen)


def label_selectors(spec: GangSpec, where: Sequence[Mapping[str, str]] = ()) -> list[dict[str, str]]:
    """Ray's label selector of each bundle; `where`: those of the tensor groups.

    Spares need the ranks' image and model of GPU, and the zone or domain that these must not leave, but no place near them.
    """
    selectors = [dict(one) for one in where] or [{} for _ in range(spec.world_size // spec.tensor)]
    together = [LABELS["zone"], LABELS[spec.within]] if spec.within else []
    same = {key: value for key, value in selectors[0].items() if key in (IMAGE_LABEL, MODEL_LABEL, *together)}
    selectors += [dict(same) for _ in range(spec.spares)]
    return [selector | elsewhere(spec.avoided) for selector in selectors] if spec.avoided else selectors


def elsewhere(nodes: Sequence[str]) -> dict[str, str]:
    """The label selector of a bundle that must not lie on these nodes. It also applies when Ray moves a bundle after a node's death."""
    return {"ray.io/node-id": none_of(nodes)}


def bundle_nodes(group: Any) -> dict[int, str]:
    """Bundle → the node on which it lies; "" for a bundle that waits for one."""
    from ray.util.placement_group import placement_group_table

    nodes = placement_group_table(group).get("bundles_to_node_id", {})
    return {int(bundle): str(node) for bundle, node in nodes.items()}


def rearranged(
    tensor: int,
    bundles: list[int],
    moved: Collection[int],
    nodes: Mapping[int, str],
    places: Mapping[str, Place] | None = None,
) -> list[int]:
    """`bundles[group]` of each tensor group. Groups of which all ranks are in `moved` may change theirs among each other."""
    groups = [group for group in range(len(bundles)) if {*range(group * tensor, (group + 1) * tensor)} <= {*moved}]
    ordered = by_place(sorted(bundles[group] for group in groups), nodes.get, places or {})
    given = dict(zip(groups, ordered, strict=True))
    return [given.get(group, bundle) for group, bundle in enumerate(bundles)]


def make_actor(spec: GangSpec, group: Any, bundle: int, name: str) -> Any:
    """An actor for a rank, or a spare, in its bundle; the one that is there already when a dead supervisor made it."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    share = spec.resources
    options = {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": share.get("CPU", 0),
        "num_gpus": share.get("GPU", 0),
        "max_restarts": 0,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, bundle),
    }
    return _actor_class().options(**options).remote(spec.device, spec.entry, spec.lease_s, spec.env)


@cache
def _actor_class() -> Any:
    """Always the same one: Ray's head keeps each that an actor was made of, 7 kB, for as long as the control plane is connected."""
    import ray

    return ray.remote(Rank)


def find_actor(name: str) -> Any:
    """The living actor of this name; None when there is none."""
    import ray

    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def kill(actor: Any) -> None:
    import ray

    with contextlib.suppress(ray.exceptions.RayError, ValueError):
        ray.kill(actor, no_restart=True)


def rank_actors(gang: str) -> list[Any]:
    """Actor handles of a gang's ranks and spares that live, found by their names."""
    import ray
    from ray.util import list_named_actors

    actors, prefix = [], rank_name(gang, 0).removesuffix("0")
    for actor in list_named_actors(all_namespaces=True):
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(prefix):
            with contextlib.suppress(ValueError):
                actors.append(ray.get_actor(actor["name"], namespace=NAMESPACE))
    return actors


def remove_group(group: Any) -> None:
    """Give up a placement group in which no actor runs."""
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


def remove_actors_and_group(gang: str, actors: list[Any]) -> None:
    """Kill these rank actors and remove the gang's placement group, if it is still there."""
    from ray.util.placement_group import get_placement_group, remove_placement_group

    for actor in actors:
        kill(actor)
    with contextlib.suppress(ValueError):
        remove_placement_group(get_placement_group(gang))
