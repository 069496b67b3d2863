"""A small corpus and the reference runs of one process, shared by the grid."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import LLAMA
from harness.ranks import train

SPEC: dict[str, Any] = {
    "model": LLAMA,
    "optimizer": {"lr": 1e-2},
    "schedule": {"warmup": 2},
    "steps": 5,
    "global_batch": 16,
    "precision": "fp64",
    "seed": 7,
    "eval": {"every": 2, "batches": 1},
    "checkpoint": {"final": False},
}


#: Grids that are long: `make test` takes every third of their cases, `make parity` all of them.
LONG = (
    "test_alike",
    "test_blame",
    "test_bubble",
    "test_combinations",
    "test_context",
    "test_experts",
    "test_formulas",
    "test_fp8",
    "test_own_time",
    "test_pipeline",
    "test_savings",
    "test_trace",
    "test_traffic",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but every third case of the long grids as `whole`. Their order is the files' own, so it is the same every time."""
    seen: dict[str, int] = {}
    for item in items:
        if item.path.stem in LONG and item.path.parent == Path(__file__).parent and hasattr(item, "callspec"):
            name = item.nodeid.partition("[")[0]
            seen[name] = seen.get(name, 0) + 1
            if seen[name] % 3 != 1:
                item.add_marker(pytest.mark.whole)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parity")


@pytest.fixture(scope="session")
def make_spec(root: Path) -> Callable[..., dict[str, Any]]:
    """`make_spec(layout, **changes)`: the small job on that layout."""
    path = root / "corpus.txt"
    rng = np.random.default_rng(0)
    path.write_bytes(rng.choice(np.frombuffer(b"etaoin shrdlu\n", dtype=np.uint8), 60_000).tobytes())

    def make(layout: dict[str, Any], **changes: Any) -> dict[str, Any]:
        batch = 12 if layout.get("data") == 3 else SPEC["global_batch"]
        data = {"source": "text", "seq_len": 32, "files": [str(path)]}
        return {**SPEC, "data": data, "layout": layout, "global_batch": batch, **changes}

    return make


@pytest.fixture(scope="session")
def one_process(root: Path, make_spec: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """The run of a spec on a single rank, computed once per variation."""
    known: dict[str, Any] = {}

    def run(spec: dict[str, Any]) -> Any:
        alone = {**spec, "layout": {}}
        key = repr(alone)
        if key not in known:
            known[key] = train(alone, root, f"reference-{len(known)}")
        return known[key]

    return run
