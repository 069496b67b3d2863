"""The exit codes of the command line, which scripts may rely on. README's table and `shardyard --help` say what stands here."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command ends with. `run`, `watch` and `submit --wait` end with the job's result."""

    SUCCEEDED = 0
    ERROR = 1
    FAILED = 100
    CANCELLED = 103
    INTERRUPTED = 130


MEANING = {
    ExitCode.SUCCEEDED: "done; of run, watch and submit --wait: the job succeeded",
    ExitCode.ERROR: "a wrong command line or spec, no answer, or a check that found something wrong",
    ExitCode.FAILED: "the job failed",
    ExitCode.CANCELLED: "the job was cancelled",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C); a watched job goes on",
}

_BY_STATE = {"succeeded": ExitCode.SUCCEEDED, "failed": ExitCode.FAILED, "cancelled": ExitCode.CANCELLED}


def of_state(state: str) -> int:
    """The exit code that tells how a job ended."""
    return _BY_STATE.get(state, ExitCode.ERROR)


def in_words() -> str:
    """All of them, as the help's last lines."""
    return "Exit codes: " + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANING.items()) + "."
