"""On real ranks: sums of quantised rows are a textbook's, and a second gather comes from the group of a secondary shard."""

from typing import Any

import numpy as np
import pytest
from harness.quantised import reduced, rounded
from harness.ranks import group, spawn

SIZES = [40, 7, 64]
N = 4


def layout_of(**given: Any) -> dict[str, Any]:
    return {"data": N, "zero": 3, "zero_plus_plus": {"block": 32, **given}}


def rows_of(rank: int) -> Any:
    return np.random.default_rng(rank).normal(size=(N, sum(SIZES))) * np.logspace(-3, 1, sum(SIZES))


@pytest.mark.parametrize("node", [None, 2])
@pytest.mark.parametrize("gradients", ["int8", "int4"])
def test_sums_are_the_textbooks(gradients: str, node: int | None) -> None:
    everyone = [rows_of(rank) for rank in range(N)]
    bits = int(gradients.removeprefix("int"))
    exact = sum(everyone)
    for rank, (found, into) in enumerate(spawn(_sums, N, layout_of(gradients=gradients, node=node))):
        expected = reduced([rows[rank] for rows in everyone], SIZES, 32, bits, node)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
        assert into == found
        assert np.abs(np.array(found) - exact[rank]).max() > 1e-3, "and not the exact sums"


def _sums(rank: int, world: int, port: int, layout: dict[str, Any]) -> Any:
    import torch

    from shardyard.strategies.data_parallel.zero_plus_plus import QuantizedReduction
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh

    mesh = make_mesh(Layout.model_validate(layout), group(rank, world, port))
    reduction, rows = QuantizedReduction(mesh, SIZES), torch.from_numpy(rows_of(rank))
    into = rows.clone()
    pending = [reduction.start(rows), reduction.start(into, into[mesh.index("replica")])]
    return [wait().tolist() for wait in pending]


CASES: list[dict[str, Any]] = [{"weights": "int8"}, {"secondary": 2}, {"weights": "int8", "secondary": 2}]


@pytest.mark.parametrize("given", CASES, ids=str)
def test_gathers_come_from_the_secondary_shard_until_the_weights_change(given: dict[str, Any]) -> None:
    quantised, secondary = "weights" in given, "secondary" in given
    shards = [np.random.default_rng(rank).normal(size=sum(SIZES)) for rank in range(N)]
    for later in (0.0, 1.0):
        shards = [shard + later for shard in shards]
        expected = [rounded(shard, SIZES, 32, 8) if quantised else shard for shard in shards]
        for found in spawn(_gathers, N, layout_of(**given), [shard.tolist() for shard in shards]):
            for values in found["values"]:
                np.testing.assert_allclose(values, np.concatenate(expected), rtol=0, atol=1e-13)
            length = sum(SIZES) + 5 * 8 if quantised else 8 * sum(SIZES)
            far, near = ("data", 3 * length), ("secondary", 2 * length)
            assert found["kept"] == ([2 * length, 0, 2 * length] if secondary else [0, 0, 0])
            assert found["sent"] == [far, near if secondary else far, far]


def _gathers(rank: int, world: int, port: int, layout: dict[str, Any], shards: list[list[float]]) -> dict[str, Any]:
    """Three gathers: two of the same weights, and one after an update. `kept`: bytes after the second, the drop and the third."""
    import torch

    from shardyard.strategies.data_parallel.zero_plus_plus import WeightGather
    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.telemetry.comm_counter import Traffic, axes_of

    mesh = make_mesh(Layout.model_validate(layout), group(rank, world, port))
    gather = WeightGather(mesh, SIZES)
    found: dict[str, list[Any]] = {"values": [], "kept": [], "sent": []}

    def gathered() -> None:
        output = torch.full((world * len(shards[rank]),), torch.nan, dtype=torch.float64)
        mine = output.view(world, -1)[rank]
        mine.copy_(torch.tensor(shards[rank], dtype=torch.float64))
        with Traffic(axes_of(mesh)) as traffic:
            work = gather(output, mine, mesh.group("replica"))
        assert work is not None and work.wait()
        ((axis, kinds),) = traffic.moved.items()
        found["values"].append(output.tolist())
        found["sent"].append((axis, kinds["all_gather"].bytes))

    def kept() -> int:
        return 0 if gather.kept is None else gather.kept.nbytes

    gathered()
    gathered()
    found["kept"].append(kept())
    gather.drop()
    found["kept"].append(kept())
    gathered()
    found["kept"].append(kept())
    return found
