"""How an error is printed: with its code, and a command to run next; for programs as one line of JSON on stderr."""

import json
import sys
from collections.abc import Sequence
from typing import Final

from ...service.schemas.problem import FieldError
from .exit_codes import ExitCode
from .terminal.screen import Screen

#: What to run after an error of this code.
_NEXT: Final = {
    "sweep_not_found": "See which sweeps there are with: shardyard sweeps",
    "job_not_found": "See which jobs there are with: shardyard list",
    "model_not_found": "See which models there are with: shardyard models",
    "node_not_found": "See which nodes there are with: shardyard nodes",
    "job_deleted": "See which jobs can be restored with: shardyard undelete",
    "job_not_ended": "See its state with: shardyard show JOB",
    "job_ended": "See how it ended with: shardyard show JOB",
    "artifact_not_found": "See which files there are with: shardyard artifacts JOB",
    "trace_not_found": "See which traces there are with: shardyard trace JOB --list",
    "trace_open": "See its progress with: shardyard trace JOB --list",
    "job_not_running": "See its state with: shardyard show JOB",
    "profile_rank_unknown": "See its ranks with: shardyard show JOB",
    "too_many_profiles": "See the files of those that ended with: shardyard artifacts JOB",
    "port_closed": "See what it prints with: shardyard logs JOB",
    "rank_unreachable": "See the job's state with: shardyard show JOB",
    "exec_open": "See its output with: shardyard logs JOB --rank R",
    "invalid_fault": "See which faults there are with: shardyard chaos --help",
    "invalid_spec": "See the schema of a spec with: shardyard schema",
    "too_many_ranks": "See the cluster's devices with: shardyard nodes",
    "idempotency_conflict": "Submit it under a new key with: shardyard submit SPEC",
    "unauthenticated": "See your token with: shardyard token  (SHARDYARD_TOKEN, SHARDYARD_TOKEN_PATH)",
    "not_shardyard": "Use another address with: shardyard --help  (--url, SHARDYARD_URL)",
}


def print_error(code: str, detail: str, errors: Sequence[FieldError], *, as_json: bool) -> int:
    """Print an error to stderr, for programs as one line of JSON."""
    screen = Screen()
    if as_json:
        found = {"code": code, "detail": detail, "errors": [finding.model_dump() for finding in errors]}
        sys.stderr.write(json.dumps(found) + "\n")
        return ExitCode.ERROR
    screen.error(detail, errors, code)
    if code in _NEXT:
        screen.hint(_NEXT[code])
    elif not any("shardyard " in (finding.remedy or "") for finding in errors):
        screen.hint("See how with: shardyard --help")
    return ExitCode.ERROR
