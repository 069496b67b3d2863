"""Each file of tests has a time budget, committed in `tests/budgets.json`. `make test` names a file that takes half as much again;
`make budgets` fails by it.

A pytest plugin. Budgets are seconds on a quiet machine with two cores, without what files share: set-up and clean-up of fixtures of the
session or a package count for no file. A run is measured by its own pace: if all files together take twice their budgets, the machine is
slow or busy, and each file may take twice its own.
"""

import json
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import pytest

#: A file is over its budget beyond `EXCEEDED` times that, and by at least `LEAST_S` seconds: the shortest files are all noise.
EXCEEDED = 1.5
LEAST_S = 10.0
#: Fixtures that belong to no file.
SHARED = ("session", "package")


def budgets_file(root: Path) -> Path:
    return root / "tests" / "budgets.json"


def read_budgets(root: Path) -> dict[str, float]:
    """Seconds by file, as paths from the repository's root."""
    file = budgets_file(root)
    return dict(json.loads(file.read_text())) if file.exists() else {}


def exceeded(took: dict[str, float], budgets: dict[str, float]) -> dict[str, float]:
    """The files that took too long at this run's pace, with the seconds that they were allowed."""
    known = took.keys() & budgets.keys()
    pace = max(1.0, sum(took[file] for file in known) / max(1e-9, sum(budgets[file] for file in known)))
    allowed = {file: max(EXCEEDED * budgets.get(file, 0.0), budgets.get(file, 0.0) + LEAST_S) * pace for file in took}
    return {file: limit for file, limit in allowed.items() if took[file] > limit}


class SharedClock:
    """Notes in each test's report the seconds that shared fixtures took in it. Runs in the process of the tests."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._began: list[float] = []  # a shared fixture may ask for another

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if fixturedef.scope not in SHARED:
            return (yield)
        fixturedef.addfinalizer(
            self._end
        )  # the last added is the first called: the fixture's own clean-up is between these two
        self._begin()
        try:
            return (yield)
        finally:
            self._end()
            fixturedef.addfinalizer(self._begin)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        report.__dict__["shared_s"] = self._seconds  # pytest-xdist sends a report's attributes
        self._seconds = 0.0
        return report

    def _begin(self) -> None:
        self._began.append(time.perf_counter())

    def _end(self) -> None:
        began = self._began.pop()
        if not self._began:
            self._seconds += time.perf_counter() - began


class BudgetKeeper:
    """Adds up what each file takes: its set-up, tests and clean-up. Runs in the process that gathers the reports."""

    def __init__(self, mode: Literal["name", "hold", "write"], root: Path) -> None:
        self._mode = mode
        self._root = root
        self._took: defaultdict[str, float] = defaultdict(float)
        self._over: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        own = report.duration - getattr(report, "shared_s", 0.0)
        self._took[report.nodeid.partition("::")[0]] += own

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._mode == "write":
            if exitstatus == 0:
                rounded = {file: round(seconds, 1) for file, seconds in sorted(self._took.items())}
                budgets_file(self._root).write_text(json.dumps(rounded, indent=2) + "\n")
            return
        self._over = exceeded(self._took, read_budgets(self._root))
        if self._over and self._mode == "hold" and exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for file, limit in sorted(self._over.items()):
            said = f"{file} took {self._took[file]:.0f} s; its budget allows {limit:.0f} s at this run's pace"
            terminalreporter.write_line(f"{said}: make it faster, or say why not in tests/budgets.json", red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    says = "name the files over their time budgets, fail by them too, or write the budgets from this run"
    parser.addoption("--budgets", choices=("name", "hold", "write"), help=says)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SharedClock())
    if config.getoption("--budgets") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(BudgetKeeper(config.getoption("--budgets"), config.rootpath))
