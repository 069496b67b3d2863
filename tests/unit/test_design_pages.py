"""The design pages are short, complete, and agree with the code that they describe."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from shardyard.service.states import MOVES, State

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DESIGN = sorted((DOCS / "design").glob("*.md"))
CONTENTS = DOCS / "architecture.md"
#: Pages whose folders are checked here; `test_house.py` checks the files that every page names.
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "deploy").rglob("README.md"))]
FOLDER = re.compile(r"`((?:api|deploy|docs|examples|service|strategies|tests|workers)/[\w/-]*)`")


@pytest.mark.parametrize("page", DESIGN, ids=lambda page: page.stem)
def test_a_page_is_short(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 140


def test_the_contents_fit_on_a_screen() -> None:
    assert len(CONTENTS.read_text().splitlines()) <= 60


def test_the_contents_and_the_site_name_every_page() -> None:
    pages = [f"design/{page.name}" for page in DESIGN]
    assert sorted(re.findall(r"\]\((design/[\w-]+\.md)\)", CONTENTS.read_text())) == pages
    navigation = re.findall(r"^ +- (design/[\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(navigation) == pages


def test_every_folder_in_backticks_exists() -> None:
    named = {(page.name, folder) for page in PAGES for folder in FOLDER.findall(page.read_text())}
    assert len(named) > 10
    assert [(page, folder) for page, folder in sorted(named) if not (ROOT / folder).is_dir()] == []


def test_the_state_table_is_the_one_of_the_code() -> None:
    section = _section("All moves")
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)
    drawn = {State(state): frozenset(map(State, re.findall(r"`(\w+)`", moves))) for state, moves in rows}
    assert drawn == MOVES
    assert [state for state, moves in rows if moves == "final"] == [state for state in State if not MOVES[state]]


def test_the_usual_ways_exist() -> None:
    ways = [line.split(" → ") for line in _section("The usual ways").splitlines() if "→" in line]
    taken = [(State(here), State(there)) for way in ways for here, there in pairwise(way)]
    assert taken and all(there in MOVES[here] for here, there in taken)


def test_every_state_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", _section("What each state means"), re.MULTILINE)
    assert rows == list(State)


def _section(heading: str) -> str:
    page = (DOCS / "design" / "jobs-and-states.md").read_text()
    return page.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_the_files_that_import_ray_are_listed() -> None:
    page = (DOCS / "design" / "overview.md").read_text()
    section = re.split(r"The\s+training\s+loop\s+also", re.split(r"Only\s+these\s+files\s+import\s+Ray:", page)[1])[0]
    importing = [
        str(file.relative_to(ROOT))
        for floor in ("api", "service", "strategies", "workers")
        for file in (ROOT / floor).rglob("*.py")
        if "node_modules" not in file.parts and re.search(r"^\s*(import|from) ray\b", file.read_text(), re.MULTILINE)
    ]
    assert sorted(re.findall(r"`([\w/]+\.py)`", section)) == sorted(importing)
