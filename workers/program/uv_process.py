"""Runs uv, and makes one line of what it says of a failure."""

import re
from typing import Final

from uv import find_uv_bin

from .build_process import BuildProcess, Ended, EnvironmentNotBuilt, cause_of, shortened

#: Signs of an index that cannot be reached, or answers 5xx, in uv's last error.
_NETWORK: Final = re.compile(
    r"error sending request|failed after \d+ retries|status server error|operation timed out|dns error|connection reset|"
    r"failed to connect to|could not resolve host",
    re.IGNORECASE,
)
_CAUSE: Final = re.compile(r"^ *cause: (.+(?:\n {9}\S.*)*)", re.MULTILINE)
#: uv says why a package was not found if an index has refused to answer.
_HINT: Final = re.compile(r"^hint: (An index .+)$", re.MULTILINE)
#: What a build backend wrote to its standard error: indented, until a line that is not.
_BACKEND: Final = re.compile(r"\[stderr\]\n((?:(?: .*)?\n)+)")


class Uv:
    """Runs commands of uv."""

    def __init__(self, process: BuildProcess) -> None:
        self._process = process

    def run(self, *arguments: str) -> None:
        """Raises EnvironmentNotBuilt, EndRequested."""
        try:
            uv = find_uv_bin()
        except OSError as error:
            raise EnvironmentNotBuilt(f"uv cannot be started on this node: {error}") from None
        ended = self._process.run(uv, *arguments)
        if ended.status != 0:
            raise _failure(ended)


def _failure(ended: Ended) -> EnvironmentNotBuilt:
    cause = cause_of(ended.status, _last_error(ended.output), _NETWORK)
    return EnvironmentNotBuilt(reason(ended.output) or ended.text("uv"), cause)


def reason(output: str) -> str:
    """The last error in uv's output and its causes, as one line. Empty if there is none."""
    error = _last_error(output)
    said = [error.partition("\n")[0], *_CAUSE.findall(error)]
    if backend := _BACKEND.search(error):
        said = [said[0], backend[1].strip().rpartition("\n")[2] or said[-1]]
    elif len(said) > 3:  # each cause is the same in other words
        said = [said[0], said[1], said[-1]]
    said += _HINT.findall(error)
    text = ": ".join(" ".join(part.split()) for part in said)
    return shortened(re.sub(r",? we can conclude that [^,]*\b(unsatisfiable|cannot be used)\.", ".", text))


def _last_error(output: str) -> str:
    """What follows the last `error: ` at the beginning of a line; what a build backend wrote is indented."""
    _, found, error = f"\n{output}".rpartition("\nerror: ")
    return error if found else ""
