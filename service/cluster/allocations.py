"""Reads from Ray which gang has what of which node: each gang's placement group reserves bundles on nodes.

The nodes' own numbers count all that is used there; this attributes the part of our gangs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..ids import job_of
from ..schemas.node import Allocation


def by_node(groups: Iterable[Mapping[str, Any]]) -> dict[str, list[Allocation]]:
    """Node → what each gang has of it, by the gangs' names. `groups`: those that live, as rows of Ray's `placement_group_table`."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for group in groups:
        if job_of(group["name"]) is None:
            continue
        for bundle, node in group["bundles_to_node_id"].items():
            part = found.setdefault(node, {}).setdefault(group["name"], Counter())
            part.update(group["bundles"][bundle])
    return {node: [_share(gang, part) for gang, part in sorted(gangs.items())] for node, gangs in found.items()}


def _share(gang: str, part: Mapping[str, float]) -> Allocation:
    # Ray's fractions do not add up exactly
    cpu, gpu = (round(float(part.get(name, 0)), 4) for name in ("CPU", "GPU"))
    return Allocation(gang=gang, cpu=cpu, gpu=gpu)
