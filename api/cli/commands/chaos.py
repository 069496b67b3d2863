"""`shardyard chaos`: inject a fault into a running job."""

from typing import Annotated

import typer

from ...client import Client
from ...errors import InvalidParameter
from ..options import JobName, Json, Url
from ..terminal.screen import Screen

_RANK = {"min": 0, "metavar": "RANK"}


def chaos(  # noqa: PLR0913, PLR0917 - an option each
    job: JobName,
    kill_rank: Annotated[int | None, typer.Option("--kill-rank", help="SIGKILL a rank's trainer.", **_RANK)] = None,
    kill_actor: Annotated[int | None, typer.Option("--kill-actor", help="SIGKILL a rank's actor.", **_RANK)] = None,
    hang_rank: Annotated[int | None, typer.Option("--hang-rank", help="SIGSTOP a rank's trainer.", **_RANK)] = None,
    slow_rank: Annotated[int | None, typer.Option("--slow-rank", help="Slow down a rank's steps.", **_RANK)] = None,
    kill_supervisor: Annotated[bool, typer.Option("--kill-supervisor", help="SIGKILL the gang's supervisor.")] = False,
    corrupt_checkpoint: Annotated[
        bool, typer.Option("--corrupt-checkpoint", help="Flip a bit of the newest checkpoint.")
    ] = False,
    delay_ms: Annotated[
        float | None, typer.Option("--delay-ms", help="With --slow-rank: delay per step; default 50.")
    ] = None,
    duration_s: Annotated[
        float | None, typer.Option("--duration-s", help="With --slow-rank: duration; default 20.")
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Inject a fault into a running job, if the server allows it (SHARDYARD_FAULT_INJECTION=true)."""
    ranks = {"kill-rank": kill_rank, "kill-actor": kill_actor, "hang-rank": hang_rank, "slow-rank": slow_rank}
    wanted: list[tuple[str, int | None]] = [(kind, rank) for kind, rank in ranks.items() if rank is not None]
    whole = {"kill-supervisor": kill_supervisor, "corrupt-checkpoint": corrupt_checkpoint}
    wanted += [(kind, None) for kind, asked in whole.items() if asked]
    kind, rank = _only(wanted)
    screen = Screen()
    with Client(url) as client:
        fault = client.inject_fault(job, kind, rank=rank, delay_ms=delay_ms, duration_s=duration_s)
    if json:
        screen.json(fault)
        return
    screen.out.print(f"{fault.id}  {fault.kind}" + (f"  rank {fault.rank}" if fault.rank is not None else ""))
    screen.hint(f"See its effect with: shardyard watch {fault.job}; shardyard incidents {fault.job}")


def _only(wanted: list[tuple[str, int | None]]) -> tuple[str, int | None]:
    if len(wanted) != 1:
        problem = "Several faults were named" if wanted else "No fault was named"
        raise InvalidParameter(f"{problem}.", remedy="Name one, such as: shardyard chaos JOB --kill-rank 2")
    return wanted[0]
