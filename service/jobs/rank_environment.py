"""Checks `resources.env` and `secrets`: the variables that a job adds to the environment of its ranks."""

import re
from collections.abc import Mapping
from typing import Final

from ...workers.messages.secret import names_secret
from ..errors import InvalidSpec
from ..schemas.problem import FieldError
from ..spec import AnySpec, CommandSpec

_FIELD: Final = "resources.env"

#: Variables that no job may set → why.
_RESERVED: Final = {
    **dict.fromkeys(
        (
            *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
            *("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        ),
        "Shardyard numbers the ranks, and each gets its own value",
    ),
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        "Ray gives each rank its device",
    ),
}
#: Further ones that training jobs may not set.
_OF_TRAINERS: Final = {
    **dict.fromkeys(
        ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME"),
        "a trainer is forked from a process that has loaded its libraries already",
    ),
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
        "a rank has one thread on CPUs, and on GPUs one per core of its share",
    ),
    **dict.fromkeys(
        ("TORCH_DISTRIBUTED_DEBUG", "TORCH_LOGS", "TORCH_LOGS_OUT", "TORCH_TRACE"),
        "torch reads it when it is imported, and a trainer is forked from a process that has imported it",
    ),
}
#: Variables of whose options torch reads `backend` when it is imported, and the others later.
_ALLOCATOR: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
#: Variables of Ray that a job with `ray` may not set; others it may.
_OF_RAY: Final = dict.fromkeys(
    (
        "RAY_ADDRESS",
        "RAY_AUTH_MODE",
        "RAY_AUTH_TOKEN",
        "RAY_AUTH_TOKEN_PATH",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
        "RAY_START_HOOK",
    ),
    "the job's Ray cluster has values of its own",
)
_PREFIXES: Final = {
    "RAY_": "variables of Ray are not passed to trainers",
    "SHARDYARD_": "Shardyard's own settings are those of its processes",
    "TORCHELASTIC_": "Shardyard starts the ranks, not torchrun",
}
_URL_WITH_PASSWORD: Final = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def check(spec: AnySpec) -> None:
    """Raise InvalidSpec for a variable that the job may not set, or sets twice."""
    taken = {name: f"{_FIELD}.{name}" for name in spec.resources.env}
    for number, use in enumerate(spec.secrets):
        field = f"secrets[{number}]"
        if use.target in taken:
            remedy = "Give one of them another variable."
            raise InvalidSpec(f"{taken[use.target]} sets {use.target}, too.", field=field, remedy=remedy)
        taken[use.target] = field
    # A program is a process of its own; a trainer is not.
    reserved = _RESERVED if isinstance(spec, CommandSpec) else _RESERVED | _OF_TRAINERS
    prefixes = _PREFIXES
    if isinstance(spec, CommandSpec) and spec.ray is not None:
        reserved = reserved | _OF_RAY
        prefixes = {prefix: why for prefix, why in _PREFIXES.items() if prefix != "RAY_"}
    for name, field in taken.items():
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
        why = reserved.get(name) or prefixes.get(prefix)
        if why is not None:
            remedy = "Leave it out. An operator can set it in the environment of the machine's Ray process."
            if name.startswith(("LD_", "PYTHON")):
                remedy += " train.model.code names the folder of your own module."
            raise InvalidSpec(f"{name} is not for jobs: {why}.", field=field, remedy=remedy)
    if not isinstance(spec, CommandSpec):
        _check_allocator(spec.resources.env)


def _check_allocator(env: Mapping[str, str]) -> None:
    """Raise InvalidSpec for an allocator other than the one with which torch was imported: torch would end at the first tensor."""
    for name in _ALLOCATOR:
        if "backend:" in env.get(name, "").replace(" ", ""):
            raise InvalidSpec(
                "The allocator's backend is not for jobs: a trainer is forked from a process that has imported torch.",
                field=f"{_FIELD}.{name}",
                remedy="Leave backend out. An operator can set it in the environment of the machine's Ray process.",
            )


def warnings(env: Mapping[str, str]) -> list[FieldError]:
    """One finding for each variable whose name says that its value is secret, or whose value is a URL with a password."""
    message = "Every user of this server can read the specs of all jobs, and so this value."
    remedy = "Store it with `shardyard secrets --set NAME`, and name it in secrets."
    return [
        FieldError(field=f"{_FIELD}.{name}", message=message, remedy=remedy)
        for name, value in env.items()
        if names_secret(name) or _URL_WITH_PASSWORD.search(value)
    ]
