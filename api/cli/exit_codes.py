"""The exit codes of the command line, which scripts may rely on. README's table and `shardyard --help` list them."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status of a command. `run`, `watch` and `submit --wait` end with the job's result."""

    SUCCEEDED = 0
    ERROR = 1
    FAILED = 100
    CANCELLED = 103
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANING = {
    ExitCode.SUCCEEDED: "done; of run, watch and submit --wait: the job succeeded",
    ExitCode.ERROR: "a wrong command line or spec, no answer, or a check that found something wrong",
    ExitCode.FAILED: "the job failed",
    ExitCode.CANCELLED: "the job was cancelled",
    ExitCode.HUNG_UP: "SIGHUP, as of a closed terminal; run has cancelled its job",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C); a watched job keeps running",
    ExitCode.TERMINATED: "SIGTERM, as of a CI runner; run has cancelled its job",
}


class ProgramEnded(Exception):
    """The command ends as a program of the user's has ended: with its exit status, whatever that number means for a command."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


_BY_STATE = {"succeeded": ExitCode.SUCCEEDED, "failed": ExitCode.FAILED, "cancelled": ExitCode.CANCELLED}


def of_state(state: str) -> int:
    """The exit code of an ended job's state."""
    return _BY_STATE.get(state, ExitCode.ERROR)


def format_exit_codes() -> str:
    """All exit codes, as the last lines of the help."""
    return "Exit codes: " + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANING.items()) + "."
