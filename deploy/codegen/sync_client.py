"""Writes the blocking client, `api/client/_sync/`, from the asynchronous one, `api/client/_async/`; a test compares the two.

`python deploy/codegen/sync_client.py` rewrites the generated files. `runtime.py` of each side is written by hand: it holds what a rewriting
of tokens cannot, such as how to sleep and which HTTP client to open.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[2] / "api" / "client"
FILES = ("client.py", "job.py", "questions.py")

HEADER = "# Generated from api/client/_async/{name}; change that file, then run: make sync-client\n"

#: Keywords that disappear, with the space after them.
DROPPED = ("async", "await")
NAMES = {
    "AsyncClient": "Client",
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "AsyncJobHandle": "JobHandle",
    "AsyncQuestions": "Questions",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "anext": "next",
    "aread": "read",
}
_IN_TEXT = re.compile(r"\bAsync(Client|JobHandle|Questions)\b")


def generated(name: str) -> str:
    """The text of `_sync/<name>`."""
    source = (CLIENT / "_async" / name).read_text(encoding="utf-8")
    return _formatted(HEADER.format(name=name) + rewritten(source), name)


def rewritten(source: str) -> str:
    """Source without `async` and `await`, and with the blocking counterparts of the names in `NAMES`."""
    lines = source.splitlines(keepends=True)
    for row, start, end, text in sorted(_edits(source), reverse=True):
        lines[row] = lines[row][:start] + text + lines[row][end:]
    return _IN_TEXT.sub(r"\1", "".join(lines))


def _edits(source: str) -> Iterator[tuple[int, int, int, str]]:
    """Line, first column, column after the last, and what stands there instead."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row, start, end = token.start[0] - 1, token.start[1], token.end[1]
        if token.type != tokenize.NAME:
            continue
        if token.string in DROPPED:
            yield row, start, end + 1, ""
        elif token.string in NAMES:
            yield row, start, end, NAMES[token.string]


def _formatted(text: str, name: str) -> str:
    """Imports sorted and lines broken as ruff does it."""
    path = str(CLIENT / "_sync" / name)
    for command in (["check", "--fix-only", "--select", "I", "--quiet"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", path, "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, timeout=60).stdout
    return text


if __name__ == "__main__":
    for file in FILES:
        (CLIENT / "_sync" / file).write_text(generated(file), encoding="utf-8")
