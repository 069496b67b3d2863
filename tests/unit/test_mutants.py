"""The list of mutants fits the tree: each still changes one place, and has killers that `make test` runs."""

from pathlib import Path

import pytest
from mutants.run import ROOT, Mutant, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_it_can_be_made_and_its_killers_are_there(mutant: Mutant) -> None:
    changed = mutant.applied((ROOT / mutant.file).read_text())
    compile(changed, mutant.file, "exec")
    assert mutant.killers
    for killer in mutant.killers:
        file, _, test = killer.partition("::")
        path = ROOT / file
        assert path.exists(), f"{killer} is not there"
        assert not test or f"def {test.partition('[')[0]}(" in path.read_text(), f"{killer} is not there"


def test_one_that_fits_no_more_is_said() -> None:
    mutant = Mutant("gone", "x.py", "no such line", "", ("tests",))
    with pytest.raises(ValueError, match=r"gone: x\.py has what it changes 0 times"):
        mutant.applied(Path(__file__).with_name("test_docs.py").read_text())
