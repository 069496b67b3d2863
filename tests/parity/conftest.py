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


HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as `full` what `core.txt` does not name. Raises UsageError for a line that names nothing in a file that was collected whole."""
    lines = [line for line in (HERE / "core.txt").read_text().splitlines() if not line.startswith("#")]
    unused = set(lines)
    here = [item for item in items if item.path.parent == HERE]
    for item in here:
        function, _, _ = item.name.partition("[")
        names = {item.path.name, f"{item.path.name}::{function}", f"{item.path.name}::{item.name}"}
        unused -= names
        if names.isdisjoint(lines):
            item.add_marker(pytest.mark.full)
    named = {Path(argument.partition("::")[0]).name for argument in config.args if "::" in argument}
    whole = {item.path.name for item in here} - named
    wrong = sorted(line for line in unused if line.partition("::")[0] in whole)
    if wrong:
        raise pytest.UsageError(f"tests/parity/core.txt names tests that are not there: {', '.join(wrong)}")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus, and the runs of one process."""
    return tmp_path_factory.mktemp("parity")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of one file of tests: those of another may have the same names."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def make_spec(shared: Path) -> Callable[..., dict[str, Any]]:
    """`make_spec(layout, **changes)`: the small job on that layout."""
    path = shared / "corpus.txt"
    rng = np.random.default_rng(0)
    path.write_bytes(rng.choice(np.frombuffer(b"etaoin shrdlu\n", dtype=np.uint8), 60_000).tobytes())

    def make(layout: dict[str, Any], **changes: Any) -> dict[str, Any]:
        batch = 12 if layout.get("data") == 3 else SPEC["global_batch"]
        data = {"source": "text", "seq_len": 32, "files": [str(path)]}
        return {**SPEC, "data": data, "layout": layout, "global_batch": batch, **changes}

    return make


@pytest.fixture(scope="session")
def one_process(shared: Path) -> Callable[..., Any]:
    """The run of a spec on a single rank, computed once per variation."""
    known: dict[str, Any] = {}

    def run(spec: dict[str, Any]) -> Any:
        alone = {**spec, "layout": {}}
        key = repr(alone)
        if key not in known:
            known[key] = train(alone, shared, f"reference-{len(known)}")
        return known[key]

    return run
