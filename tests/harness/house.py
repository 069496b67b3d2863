"""Measures the tree: sizes, parameters, methods, shared state, words. `python tests/harness/house.py` writes the exceptions.

`tests/house.json` holds today's exceptions; each may only shrink. A number that shrank is written by running this file.
"""

import ast
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = ROOT / "tests" / "house.json"
FLOORS: Final = ("api", "service", "workers", "strategies")
MAX_LINES: Final = 400
MAX_FUNCTION_LINES: Final = 50
MAX_PARAMETERS: Final = 6
MAX_METHODS: Final = 20
#: What makes a value that code can change later; frozen values and functions do not.
MUTABLE: Final = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
#: Words that hide who does what. The right column is in the style guide: reported, again, at most, no rank …
WORDS: Final = [
    "aloud",
    "amid",
    "anew",
    "bears",
    "buddy",
    "bury",
    "certainly_dead",
    "cut_by_hand",
    "docket",
    "fate",
    "give_way",
    "hand_over",
    "hearing",
    "hears",
    "held_alike",
    "holdings",
    "in_words",
    "keeper",
    "lest",
    "lifeline",
    "lookout",
    "mend",
    "mended",
    "mends",
    "nobody",
    "noted_by_hand",
    "office",
    "offices",
    "over_both_ends",
    "patiently",
    "salvage",
    "seats",
    "somebody",
    "savings",
    "shelf",
    "stir",
    "strike",
    "strikes",
    "struck",
    "suffer",
    "suffers",
    "take_in",
    "take_over",
    "tell",
    "tell_again",
    "tells",
    "told",
    "whoever",
    "wish",
    "wished",
    "wishes",
    "withhold",
    "wounds",
]
#: Clocks that a busy machine moves on.
CLOCKS: Final = (
    "time.monotonic",
    "time.perf_counter",
    "time.process_time",
    "time.thread_time",
    "time.time",
    "loop.time",
)
TEXTS: Final = (".py", ".md", ".ts", ".tsx", ".yaml", ".tpl", ".txt", ".toml", ".css", ".html")
#: Files that must be able to name the words: this one, and what is history.
EXEMPT: Final = ("tests/harness/house.py", "tests/house.json", "service/store/migrations/versions/")

Measured = dict[str, dict[str, int]]


def files() -> list[str]:
    """All files of the repository, from its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout.split(
        "\n"
    )
    return [file for file in listed if file and (ROOT / file).is_file()]


def measured() -> Measured:
    """What is over a limit today, and how often each word stands where."""
    found: Measured = {
        name: {} for name in ("lines", "function_lines", "parameters", "methods", "module_state", "words")
    }
    words: Counter[str] = Counter()
    # Words of names, too: between underscores there is no boundary of words.
    pattern = re.compile(rf"(?<![^\W_])({'|'.join(WORDS)})(?![^\W_])", re.IGNORECASE)
    for file in files():
        if not file.endswith(TEXTS) or file.startswith(EXEMPT) or "/dist/" in file:
            continue
        text = (ROOT / file).read_text()
        words.update(match.lower() for match in pattern.findall(text))
        if file.endswith(".py") and file.startswith(FLOORS) and not file.startswith(EXEMPT):
            _measure(file, text, found)
    found["words"] = dict(sorted(words.items()))
    return found


def asserted_times(text: str) -> list[int]:
    """Lines of a test file that assert on elapsed time, but for tests marked `timing`, which run alone.

    A loop with a deadline is patience and no such assertion. Nor is the time of a virtual loop.
    """
    found = []
    for test in ast.walk(ast.parse(text)):
        if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(ast.unparse(mark) == "pytest.mark.timing" for mark in test.decorator_list):
            continue
        elapsed = {
            name.id
            for node in ast.walk(test)
            if isinstance(node, ast.Assign) and _is_elapsed(node.value)
            for target in node.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        for node in ast.walk(test):
            if isinstance(node, ast.Assert):
                names = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}
                if names & elapsed or _is_elapsed(node.test):
                    found.append(node.lineno)
    return found if "run_virtually" not in text else []


def _is_elapsed(expression: ast.expr) -> bool:
    """Whether it has the difference of a clock and something else."""
    differences = [one for one in ast.walk(expression) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)]
    return any(
        isinstance(call, ast.Call) and ast.unparse(call.func) in CLOCKS
        for difference in differences
        for call in ast.walk(difference)
    )


def mirrored() -> int:
    """Of a hundred modules of the four floors, how many have a test file of their name."""
    tests = {Path(file).name for file in files() if file.startswith("tests/")}
    modules = [Path(file).name for file in files() if file.endswith(".py") and file.startswith(FLOORS)]
    modules = [name for name in modules if not name.startswith(("__", "v00")) and name != "env.py"]
    return 100 * sum(f"test_{name}" in tests for name in modules) // len(modules)


def floors(top: str) -> dict[str, int]:
    """Folder of `top` → how many folders there are on the longest way down from it by imports, itself included.

    Imports within functions count, those for types alone do not. Raises RecursionError for folders that import each other.
    """
    paths = [Path(file).parts for file in files() if file.startswith(f"{top}/") and file.endswith(".py")]
    below: dict[str, set[str]] = {parts[1]: set() for parts in paths if len(parts) > 2}
    for parts in paths:
        if parts[1] in below:
            imported = _imported(parts, ast.parse(ROOT.joinpath(*parts).read_text()))
            below[parts[1]] |= {path[1] for path in imported if path[0] == top and path[1] in below} - {parts[1]}

    @cache
    def height(folder: str) -> int:
        return 1 + max(map(height, below[folder]), default=0)

    return {folder: height(folder) for folder in below}


def _imported(parts: Sequence[str], tree: ast.Module) -> Iterator[list[str]]:
    """What the file of these path parts imports by relative names, from the root, each with its name at the end."""
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    for_types = {id(node) for block in typing for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in for_types:
            module = node.module.split(".") if node.module else []
            yield from ([*parts[: -node.level], *module, alias.name] for alias in node.names)


def _measure(file: str, text: str, found: Measured) -> None:
    lines = text.count("\n")
    if lines > MAX_LINES:
        found["lines"][file] = lines
    tree = ast.parse(text)
    for name, node in _named(tree):
        where = f"{file}::{name}"
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body)
            if methods > MAX_METHODS:
                found["methods"][where] = methods
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > MAX_FUNCTION_LINES:
            found["function_lines"][where] = length
        given = node.args
        parameters = len([*given.posonlyargs, *given.args, *given.kwonlyargs]) - (
            given.args[:1] != [] and given.args[0].arg in ("self", "cls")
        )
        if parameters > MAX_PARAMETERS and not file.startswith(("api/cli/", "api/client/")):
            found["parameters"][where] = parameters
    for name in _state(tree):
        found["module_state"][f"{file}::{name}"] = 1


def _named(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
            yield from _named(node, f"{prefix}{node.name}.")


def _state(tree: ast.Module) -> Iterator[str]:
    """Module-level values that are changed later: empty collections, and calls of classes whose value is not a constant's."""
    frozen = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any("frozen" in ast.unparse(one) for one in [*node.decorator_list, *node.keywords, *node.bases])
    }
    local = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} - frozen
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(target, ast.Name) or value is None:
            continue
        empty = (isinstance(value, MUTABLE) and not any(ast.iter_child_nodes(value))) or ast.unparse(value) in (
            "{}",
            "[]",
            "set()",
        )
        if empty or (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in local):
            yield target.id


def grown(now: Measured, allowed: Measured) -> list[str]:
    """What is over its limit and was not, or grew."""
    return [
        f"{kind}: {where} is {count}, allowed {allowed.get(kind, {}).get(where, 'the limit')}"
        for kind, counts in now.items()
        for where, count in counts.items()
        if count > allowed.get(kind, {}).get(where, 0)
    ]


if __name__ == "__main__":
    FILE.write_text(json.dumps({**measured(), "mirrored": {"percent": mirrored()}}, indent=1, sort_keys=True) + "\n")
