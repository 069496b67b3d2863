"""Makes the memory plan of a module of the user's own, where its code is: by a dry run. Imports no torch.

The module's code runs in the dry run's process, which has a time limit.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ..data.errors import DataError
from ..data.tokenizer import vocab_size
from ..gpu_models import gpu_named
from ..own_plan import digest
from ..planned_memory import MOST, HeldBytes, PlannedMemory
from ..spec import Dtype, TrainSpec
from .processes import DryRunUnavailable, Request, dry_runs, representatives
from .report import DryRun
from .unsupported import unsupported

#: Plays the GPU. The dry run reads its compute capability, which decides nothing here: the precision is given.
_GPU: Final = "H100"


def planned_memory(
    train: TrainSpec,
    precision: Dtype,
    timeout_s: float,
    run: Callable[[Sequence[Request], float], list[DryRun]] = dry_runs,
) -> PlannedMemory:
    """The plan of a spec with `model.import`, computed in `precision`, which is no longer `auto`. `run` makes the dry runs.

    Raises `DryRunUnavailable` if there can be no dry run here or it takes longer than `timeout_s`, `DryRunFailed` if the module raises,
    and `Refusal` if it cannot be imported, or cannot do what the spec asks for.
    """
    compute = train.precision.model_copy(update={"compute": precision})
    decided = train.model_copy(update={"precision": compute, "planned": None})
    if (refusal := unsupported(decided)) is not None:
        raise DryRunUnavailable(refusal.message)
    try:
        vocab = vocab_size(train.data, train.model.vocab)
    except (DataError, RuntimeError) as error:  # RuntimeError: a path with an unknown ~user
        raise DryRunUnavailable(str(error)) from None
    gpu = gpu_named(_GPU)
    assert gpu is not None
    reports = run([Request(decided, vocab, gpu, rank) for rank in representatives(train.layout)], timeout_s)
    fullest = max(reports, key=lambda report: sum(report.by_kind.values()))
    return PlannedMemory(
        of=digest(train),
        ranks=train.layout.world_size,
        parameters=min(MOST, fullest.parameters),
        at_peak=HeldBytes.model_validate({kind: min(MOST, held) for kind, held in fullest.by_kind.items()}),
        host_bytes=min(MOST, fullest.host_bytes),
    )
