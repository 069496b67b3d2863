"""Each file of tests has a time budget, committed in `tests/budgets.json`; a file that takes half as much again fails the run.

Budgets are seconds on a quiet machine with two cores. A run is measured by its own pace: if all files together take twice their budgets,
the machine is slow or busy, and each file may take twice its own. So it is the file that grew that fails, never the machine.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Literal

import pytest

FILE = Path(__file__).parents[1] / "budgets.json"
#: Seconds by file, as paths from the repository's root.
BUDGETS: dict[str, float] = json.loads(FILE.read_text()) if FILE.exists() else {}
#: A file fails beyond `EXCEEDED` times its budget, and by at least `LEAST_S` seconds: the shortest files are all noise.
EXCEEDED = 1.5
LEAST_S = 10.0


def exceeded(took: dict[str, float], budgets: dict[str, float]) -> dict[str, float]:
    """The files that took too long at this run's pace, with the seconds that they were allowed."""
    known = took.keys() & budgets.keys()
    pace = max(1.0, sum(took[file] for file in known) / max(1e-9, sum(budgets[file] for file in known)))
    allowed = {file: max(EXCEEDED * budgets.get(file, 0.0), budgets.get(file, 0.0) + LEAST_S) * pace for file in took}
    return {file: limit for file, limit in allowed.items() if took[file] > limit}


class BudgetKeeper:
    """A pytest plugin that adds up what each file takes: set-up, tests and clean-up."""

    def __init__(self, mode: Literal["hold", "write"]) -> None:
        self._mode = mode
        self._took: defaultdict[str, float] = defaultdict(float)
        self._over: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid.partition("::")[0]] += report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._mode == "write" and exitstatus == 0:
            FILE.write_text(json.dumps({file: round(s, 1) for file, s in sorted(self._took.items())}, indent=2) + "\n")
        elif self._mode == "hold":
            self._over = exceeded(self._took, BUDGETS)
            if self._over and exitstatus == 0:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for file, limit in sorted(self._over.items()):
            said = f"{file} took {self._took[file]:.0f} s; its budget allows {limit:.0f} s at this run's pace"
            terminalreporter.write_line(f"{said}: make it faster, or say why not in tests/budgets.json", red=True)
