"""Checks that a user's own factory, of a model or a data source, takes the arguments of a spec. Imports no torch.

The trainers inspect the factory itself; the API reads its source, and executes none of it.
"""

import ast
import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ...strategies.layout import Refusal
from ..regular_files import read

#: A larger source is not checked by the API, only by the trainers.
MOST_BYTES: Final = 1 << 20


class OwnModel(Protocol):
    """What a spec says of a user's own model (`workers.model_spec.ModelSpec`)."""

    @property
    def import_(self) -> str | None: ...

    @property
    def code(self) -> str | None: ...

    @property
    def args(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class FieldNames:
    """The spec's fields (dotted) that name a factory and its arguments."""

    factory: str
    args: str


MODEL: Final = FieldNames("model.import", "model.args")
SOURCE: Final = FieldNames("data.source", "data.options")


@dataclass(frozen=True)
class OwnSource:
    """A data source of the user's own, as `OwnModel` describes a model."""

    import_: str
    code: str | None
    args: Mapping[str, Any]


_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class _Taken:
    """The keyword arguments that a factory takes; `needed` have no default, `any`: it also takes every other."""

    names: tuple[str, ...]
    needed: tuple[str, ...]
    any: bool


def refuse_arguments(factory: Callable[..., Any], spec: OwnModel, names: FieldNames = MODEL) -> None:
    """Raises `Refusal` if the factory does not take the arguments of the spec."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # its signature cannot be read
        return
    by_name = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    needed = tuple(each.name for each in by_name if each.default is each.empty)
    _check(
        _Taken(tuple(each.name for each in by_name), needed, any(p.kind is p.VAR_KEYWORD for p in parameters)),
        spec,
        names,
    )


def check_source(spec: OwnModel, names: FieldNames = MODEL) -> None:
    """`refuse_arguments`, as far as the source in the spec's `code` folder shows.

    Raises `Refusal`, also for a source that is not Python.
    """
    assert spec.import_ is not None
    module, _, name = spec.import_.partition(":")
    file = None if spec.code is None else _file(Path(spec.code).expanduser(), module)
    if file is None:  # not in the code folder: installed on the machines that train
        return
    try:
        tree = ast.parse(read(file, MOST_BYTES))
    except SyntaxError as error:
        problem = f"{file} is not Python: {error.msg}, line {error.lineno}."
        raise Refusal(names.factory, problem, "Correct the file.") from None
    except (OSError, ValueError, RecursionError, MemoryError):
        return
    taken = _of_definition(tree, name)
    if taken is not None:
        _check(taken, spec, names)


def _file(folder: Path, module: str) -> Path | None:
    path = folder.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _of_definition(tree: ast.Module, name: str) -> _Taken | None:
    """The arguments of the function or class of this name; None if the source alone does not show them."""
    found = [each for each in tree.body if getattr(each, "name", None) == name]
    if len(found) != 1 or getattr(found[0], "decorator_list", None):
        return None
    if isinstance(found[0], ast.ClassDef):
        made = [each for each in found[0].body if isinstance(each, _Function) and each.name == "__init__"]
        return _of_function(made[0], 1) if len(made) == 1 and not made[0].decorator_list else None
    return _of_function(found[0], 0) if isinstance(found[0], _Function) else None


def _of_function(function: _Function, skipped: int) -> _Taken:
    takes = function.args
    positional = [arg.arg for arg in (*takes.posonlyargs, *takes.args)]
    without = positional[skipped : len(positional) - len(takes.defaults)]
    only = {arg.arg: default for arg, default in zip(takes.kwonlyargs, takes.kw_defaults, strict=True)}
    named = [arg.arg for arg in takes.args if arg.arg in positional[skipped:]]
    needed = [name for name in without if name in named] + [name for name, default in only.items() if default is None]
    return _Taken((*named, *only), tuple(needed), takes.kwarg is not None)


def _check(taken: _Taken, spec: OwnModel, names: FieldNames) -> None:
    given = spec.args
    for name in given:
        if name not in taken.names and not taken.any:
            close = difflib.get_close_matches(name, taken.names, n=1)
            guess = f"Did you mean {close[0]!r}? " if close else ""
            known = f"It takes: {', '.join(taken.names)}." if taken.names else "It takes none."
            raise Refusal(f"{names.args}.{name}", f"{spec.import_} takes no argument {name!r}.", guess + known)
    missing = [name for name in taken.needed if name not in given]
    if missing:
        problem = f"{spec.import_} needs {', '.join(map(repr, missing))}."
        raise Refusal(names.args, problem, f"Add {', '.join(missing)} to {names.args}.")
