"""Arguments of a model of the user's own: the source says what the factory says, and none of it is run."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.model_spec import ModelSpec
from shardyard.workers.models.own_module import check_source, refuse_arguments

SOURCES = {
    "a function": "def model(width, depth=2, *, bias=False): ...",
    "a class": "class model:\n    def __init__(self, width, depth=2, *, bias=False): ...",
    "in an if": "if True:\n    def model(width, depth=2, bias=False): ...",
    "decorated": "import functools\n@functools.cache\ndef model(width, depth=2, bias=False): ...",
    "assigned": "model = lambda width, depth=2, bias=False: ...",
    "a dataclass": "import dataclasses\n@dataclasses.dataclass\nclass model:\n    width: int\n    depth: int = 2\n    bias: bool = False",
}
#: Of which the source alone is understood.
READ = ("a function", "a class")


def spec(folder: Path, **args: Any) -> ModelSpec:
    return ModelSpec.model_validate({"import": "mine:model", "code": str(folder), "args": args})


def factory(folder: Path) -> Any:
    found = importlib.util.spec_from_file_location("mine", folder / "mine.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.model


@pytest.mark.parametrize("kind", SOURCES)
def test_the_factory_is_asked_by_the_trainers_and_its_source_by_the_api(kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCES[kind])
    good = spec(tmp_path, width=8, bias=True)
    refuse_arguments(factory(tmp_path), good)
    check_source(good)
    wrong = {"model.args.widht": spec(tmp_path, widht=8), "model.args": spec(tmp_path, depth=3)}
    for field, bad in wrong.items():
        with pytest.raises(Refusal) as refused:
            refuse_arguments(factory(tmp_path), bad)
        assert refused.value.field == field
        if kind not in READ:
            check_source(bad)
            continue
        with pytest.raises(Refusal) as read:
            check_source(bad)
        assert (read.value.field, read.value.message, read.value.remedy) == (
            field,
            refused.value.message,
            refused.value.remedy,
        )


@pytest.mark.parametrize(
    "source",
    [
        "def model(**anything): ...",
        "class model:\n    def __init__(self, **anything): ...",
        "def other(): ...",
        "from elsewhere import model",
        "raise SystemExit('this is never run')",
        "(" * 1000 + ")" * 1000,
    ],
)
def test_what_the_source_does_not_show_is_left_to_the_trainers(source: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(source)
    bad = spec(tmp_path, widht=8)
    if source.startswith("("):
        with pytest.raises(Refusal, match="is not Python"):
            check_source(bad)
    else:
        check_source(bad)


def test_a_package_is_found_and_an_installed_module_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("def model(): ...")
    with pytest.raises(Refusal, match="takes no argument 'width'"):
        check_source(spec(tmp_path, width=8))
    check_source(ModelSpec.model_validate({"import": "torch.nn:Linear", "args": {"widht": 1}}))
