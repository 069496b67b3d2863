"""What is trained for a certificate: the spec in float64 for a few steps, and the same in one process without any strategy.

Everything that changes no number, or that a proof does not need, is left out: snapshots, compiling, checks of replicas. Imports no torch.
"""

from typing import Final

from ...strategies.layout import Layout
from ...strategies.memory_options import Offload, Recompute
from ..spec import (
    CheckpointSpec,
    EvalSpec,
    PrecisionSpec,
    ProbeSpec,
    ReplicaCheckSpec,
    SnapshotSpec,
    TrainSpec,
)

#: The first step makes buffers, and the second is probed: its bytes are compared with the formulas.
LEAST_STEPS: Final = 2


def exact(train: TrainSpec, steps: int) -> TrainSpec:
    """The spec on its layout, in float64, for `steps` steps from its own first weights."""
    return train.model_copy(
        update={
            "precision": PrecisionSpec(compute="fp64"),
            "compile": False,
            "steps": steps,
            "eval": EvalSpec(every=None, batches=1),
            "checkpoint": CheckpointSpec(every=None, keep=1, final=True, uri=None, export=False),
            "snapshot": SnapshotSpec(every=0),
            "replica_check": ReplicaCheckSpec(every=0),
            "probe": ProbeSpec(),
            "resume_from": None,
            "resume_data": "continue",
        }
    )


def alone(train: TrainSpec) -> TrainSpec:
    """The same training in one process: no layout, no recompute, no offload, the whole batch at once."""
    return train.model_copy(update={"layout": Layout(), "recompute": Recompute(), "offload": Offload()})
