"""`make mutants`: makes each wrong line of mutants.toml in a copy of the tree, and runs its killers, of which one must fail.

A mutant that no killer notices survives, and the run fails: the core has a hole there. First the killers run on the tree as it is, where
they must pass. `python -m mutants.run NAME …` (in tests/) tries those alone whose names contain one of the words.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LIST: Final = Path(__file__).with_name("mutants.toml")
#: What `make test` runs.
CORE: Final = "not gpu and not full and not timing"
_LIMIT_S: Final = 1800
_ALL_PASSED, _SOME_FAILED = 0, 1  # exit codes of pytest


@dataclass(frozen=True)
class Mutant:
    """`before` → `after` in `file`; `killers` are arguments of pytest."""

    name: str
    file: str
    before: str
    after: str
    killers: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The file's text with the wrong line. Raises `ValueError` unless `before` stands there exactly once."""
        found = text.count(self.before)
        if found != 1:
            raise ValueError(f"{self.name}: {self.file} has what it changes {found} times, not once")
        return text.replace(self.before, self.after)


def mutants() -> list[Mutant]:
    """Those of the list."""
    found = tomllib.loads(LIST.read_text())["mutant"]
    return [Mutant(**{**each, "killers": tuple(each["killers"])}) for each in found]


class Tree:
    """A copy of the tracked files as the package `shardyard`, with what is built linked into it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "shardyard"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)
        for built in (".tools", "api/dashboard/dist"):
            if (ROOT / built).exists():
                (self.root / built).symlink_to(ROOT / built)

    def test(self, killers: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run these tests of the core until the first failure."""
        command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-m", CORE, *killers]
        # Before the installed package, which is the tree that we copied.
        env = os.environ | {"PYTHONPATH": str(self.root.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        pipe = subprocess.PIPE
        started = subprocess.Popen(
            command, cwd=self.root, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        try:
            stdout, stderr = started.communicate(timeout=_LIMIT_S)
        finally:
            with suppress(ProcessLookupError):  # what tests that were cut off have started
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        return subprocess.CompletedProcess(command, started.returncode, stdout, stderr)

    @contextmanager
    def wrong(self, mutant: Mutant) -> Iterator[None]:
        """The tree with one wrong line."""
        path = self.root / mutant.file
        right = path.read_text()
        path.write_text(mutant.applied(right))
        try:
            yield
        finally:
            path.write_text(right)


def verdict(tree: Tree, mutant: Mutant) -> str | None:
    """Why the mutant counts against the tests; None of one that is killed."""
    with tree.wrong(mutant):
        try:
            run = tree.test(mutant.killers)
        except subprocess.TimeoutExpired:
            return None  # training that stands still is noticed by every time limit
    if run.returncode == _SOME_FAILED:
        return None
    return "survives" if run.returncode == _ALL_PASSED else f"pytest ended with {run.returncode}:\n{run.stdout[-2000:]}"


def main(words: Sequence[str], jobs: int) -> int:
    """The number of mutants that were not killed."""
    chosen = [mutant for mutant in mutants() if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="shardyard-mutants-") as folder:
        trees: Queue[Tree] = Queue()
        for number in range(jobs):
            trees.put(Tree(Path(folder) / str(number)))
        tree = trees.get()
        right = tree.test(sorted({killer for mutant in chosen for killer in mutant.killers}))
        trees.put(tree)
        if right.returncode != _ALL_PASSED:
            print(right.stdout[-4000:], right.stderr[-2000:], "The killers do not pass on the tree as it is.", sep="\n")
            return len(chosen)

        def tried(mutant: Mutant) -> str | None:
            tree = trees.get()
            try:
                return verdict(tree, mutant)
            finally:
                trees.put(tree)

        left = 0
        with ThreadPoolExecutor(jobs) as pool:
            for mutant, against in zip(chosen, pool.map(tried, chosen), strict=True):
                print(f"{'killed  ' if against is None else 'ALIVE   '} {mutant.name}", against or "", flush=True)
                left += against is not None
    print(f"{len(chosen) - left} of {len(chosen)} mutants killed")
    return left


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose names contain one of these")
    parser.add_argument("--jobs", type=int, default=2, help="copies of the tree in use at once")
    given = parser.parse_args()
    sys.exit(min(1, main(given.words, given.jobs)))
