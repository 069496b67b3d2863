"""The environment of a rank's program: the variables that `torchrun` sets, for scripts that call `init_process_group()`.

Names and meanings: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables. The store at MASTER_ADDR:MASTER_PORT is
held by rank 0's trainer process and not by the program (TORCHELASTIC_USE_AGENT_STORE), so that no other process can take the port first.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..messages.rendezvous import RankAssignment
from .checkpoints import STAGING
from .launcher_restarts import run_id
from .program import Program
from .report_socket import SOCKET

#: The folder of `sitecustomize.py`, which Python imports at the start of each process.
AGENT: Final = Path(__file__).with_name("python_agent")
_CUDA: Final = "CUDA_VISIBLE_DEVICES"
_HIP: Final = "HIP_VISIBLE_DEVICES"


def of_rank(program: Program, coords: RankAssignment) -> dict[str, str]:
    """The variables that say which rank this is."""
    return {
        "RANK": str(coords.rank),
        "WORLD_SIZE": str(coords.world_size),
        "LOCAL_RANK": str(coords.local_rank),
        "LOCAL_WORLD_SIZE": str(coords.local_world_size),
        "GROUP_RANK": str(coords.node_rank),
        "GROUP_WORLD_SIZE": str(coords.nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(coords.rank),
        "ROLE_WORLD_SIZE": str(coords.world_size),
        "MASTER_ADDR": coords.master_host,
        "MASTER_PORT": str(coords.master_port),
        "TORCHELASTIC_RUN_ID": run_id(program.job, str(program.attempt)),
        "TORCHELASTIC_RESTART_COUNT": str(coords.generation - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(program.max_restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **_of_job(program, coords),
    }


def of_node(program: Program, coords: RankAssignment, port: int) -> dict[str, str]:
    """The variables for a process that starts the ranks of its node. torchrun reads those that begin with PET_ as its options.

    `port`: free on rank 0's node, for the rendezvous of these processes.
    """
    master = {"ADDR": coords.master_host, "PORT": str(port)}
    return {
        "PET_NNODES": str(coords.nodes),
        "PET_NODE_RANK": str(coords.node_rank),
        "PET_NPROC_PER_NODE": str(coords.local_world_size),
        **{f"PET_MASTER_{name}": value for name, value in master.items()},
        **{f"MASTER_{name}": value for name, value in master.items()},
        "GROUP_RANK": str(coords.node_rank),
        "GROUP_WORLD_SIZE": str(coords.nodes),
        **_of_job(program, coords),
    }


def of_driver(program: Program, coords: RankAssignment) -> dict[str, str]:
    """The variables of a driver of Ray, and of its cluster: none that a script takes for a rank's."""
    return _of_job(program, coords)


def _of_job(program: Program, coords: RankAssignment) -> dict[str, str]:
    return {
        "SHARDYARD_JOB": program.job,
        "SHARDYARD_ATTEMPT": str(program.attempt),
        "SHARDYARD_RESTART_COUNT": str(coords.generation - 1),
        **({STAGING: program.cache} if program.cache else {}),
    }


def environment(
    own: Mapping[str, str], sockets: Sequence[str], devices: str | None, base: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of a program.

    `own`: `of_rank` or `of_node`. `base`: the trainer process's, with what the job adds. `sockets`: where the agents report, by local rank.
    `devices`: the GPUs of all ranks of this node, by local rank; None on CPUs.
    `python` is this interpreter: its folder is put first on a PATH, also the job's own, that lacks it.
    """
    env = {"PYTHONUNBUFFERED": "1"} | dict(base) | dict(own)
    env[SOCKET] = ",".join(sockets)
    env["PYTHONPATH"] = os.pathsep.join([str(AGENT), *filter(None, [env.get("PYTHONPATH")])])
    folder = str(Path(sys.executable).parent)
    if folder not in env.get("PATH", os.defpath).split(os.pathsep):
        env["PATH"] = os.pathsep.join([folder, env.get("PATH", os.defpath)])
    if devices is not None:
        if _HIP in base and base[_HIP] == base.get(_CUDA):  # Ray has set it, to the rank's own GPU
            env[_HIP] = devices
        env[_CUDA] = devices
    return env


def within(place: Path, env: Mapping[str, str], *, conda: bool = False) -> dict[str, str]:
    """The environment `env` of a program whose Python is that of the virtual environment `place`, or conda's, and not this one."""
    path = env["PATH"].split(os.pathsep)
    if sys.prefix != sys.base_prefix:  # else other programs are in that folder, too
        path = [folder for folder in path if folder != str(Path(sys.executable).parent)]
    own = {"PATH": os.pathsep.join([str(place / "bin"), *path])}
    if not conda:
        own["VIRTUAL_ENV"] = str(place)
    else:
        own |= {"CONDA_PREFIX": str(place), "CONDA_DEFAULT_ENV": str(place)}
    others = ("PYTHONHOME", "VIRTUAL_ENV") if conda else ("PYTHONHOME",)
    return {name: value for name, value in env.items() if name not in others} | own
