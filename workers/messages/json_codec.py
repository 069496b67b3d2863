"""Dataclasses to JSON and back, by their type hints. Fields that have their default value are left out.

Only what its type hint allows is read: an unknown field, a missing one or a value of another type is a ValueError.
"""

import json
import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

#: A field without a default: no value equals it, so that it is always written.
_REQUIRED: Final = object()


def dumps(value: Any) -> bytes:
    """`value`, a dataclass or a collection with dataclasses in it, as one line of JSON. Raises TypeError for other objects."""
    return json.dumps(value, default=_fields_to_write, separators=(",", ":")).encode()


def loads(cls: type[T], data: bytes) -> T:
    """An instance of the dataclass `cls`. Raises ValueError where `data` is no JSON or does not fit the type hints."""
    value: T = read(cls, json.loads(data))
    return value


def _fields_to_write(value: Any) -> dict[str, Any]:
    if not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is no dataclass and no JSON")
    cls: Any = type(value)
    defaults = _defaults(cls)
    return {
        name: item for name, item in vars(value).items() if item is not (default := defaults[name]) and item != default
    }


@cache
def _defaults(cls: Any) -> dict[str, Any]:
    """Field → its default value."""
    found = {}
    for field in fields(cls):
        factory = None if field.default_factory is MISSING else field.default_factory()
        found[field.name] = factory if field.default is MISSING else field.default
        if field.default is MISSING and field.default_factory is MISSING:
            found[field.name] = _REQUIRED
    return found


def read(hint: Any, data: Any) -> Any:
    """The value of type `hint` that `data`, parsed JSON, stands for. Raises ValueError."""
    origin = get_origin(hint)
    if hint is Any:
        return data
    if origin in (Union, types.UnionType):
        return _read_union(get_args(hint), data)
    if origin is Literal:
        return _checked(data in get_args(hint), hint, data)
    if origin in (list, tuple, dict):
        return _read_collection(origin, get_args(hint), data)
    if is_dataclass(hint):
        return _read_dataclass(hint, data)
    if hint is float:
        return float(_checked(isinstance(data, int | float) and not isinstance(data, bool), hint, data))
    if hint is None or hint is types.NoneType:
        return _checked(data is None, hint, data)
    return _checked(type(data) is hint, hint, data)


def _read_union(hints: tuple[Any, ...], data: Any) -> Any:
    for hint in hints:
        try:
            return read(hint, data)
        except ValueError:
            continue
    raise ValueError(f"{data!r:.80} is none of {hints}")


def _read_collection(origin: Any, hints: tuple[Any, ...], data: Any) -> Any:
    if origin is dict:
        _checked(isinstance(data, dict), dict, data)
        key = int if hints[0] is int else str
        return {key(name): read(hints[1], item) for name, item in data.items()}
    _checked(isinstance(data, list), origin, data)
    if origin is list or hints[-1] is Ellipsis:
        return origin(read(hints[0], item) for item in data)
    return tuple(read(hint, item) for hint, item in zip(hints, data, strict=True))


def _read_dataclass(cls: Any, data: Any) -> Any:
    _checked(isinstance(data, dict), cls, data)
    hints = get_type_hints(cls)
    if unknown := data.keys() - {field.name for field in fields(cls)}:
        raise ValueError(f"{cls.__name__} has no field {sorted(unknown)}")
    try:
        return cls(**{name: read(hints[name], item) for name, item in data.items()})
    except TypeError as error:
        raise ValueError(str(error)) from error


def _checked(fits: bool, hint: Any, data: Any) -> Any:
    if not fits:
        raise ValueError(f"{data!r:.80} is no {getattr(hint, '__name__', hint)}")
    return data


def schema(hint: Any) -> Any:
    """What a type's JSON looks like: fields with their types and defaults, without the names of classes."""
    if is_dataclass(hint):
        return _dataclass_schema(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return list(arguments)
    if origin is None:
        return getattr(hint, "__name__", str(hint))
    name = "union" if origin in (Union, types.UnionType) else origin.__name__
    return {name: ["..." if one is Ellipsis else schema(one) for one in arguments]}


def _dataclass_schema(cls: Any) -> dict[str, Any]:
    hints, defaults = get_type_hints(cls), _defaults(cls)
    return {field.name: _field_schema(hints[field.name], defaults[field.name]) for field in fields(cls)}


def _field_schema(hint: Any, default: Any) -> dict[str, Any]:
    return {"type": schema(hint)} | ({} if default is _REQUIRED else {"default": json.loads(dumps(default))})
