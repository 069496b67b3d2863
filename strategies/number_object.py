"""Numbers of a spec that may be written as an object, such as `data: {min: 1, max: 4}`. Imports no torch.

The object becomes the number that it stands for, with what else it says beside it: code that asks for the number sees a number.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter


class NumberObject(BaseModel, ABC):
    """What is written in the place of a number."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    @abstractmethod
    def number(self) -> int:
        """What the number is."""

    @property
    @abstractmethod
    def beside(self) -> dict[str, Any]:
        """Fields beside the number's, and their values."""


def beside_the_number(given: Any, field: str, kind: type[NumberObject]) -> Any:
    """Replace an object in `given[field]` by its number, and put beside it what else it says.

    Anything else is unchanged. A validation error of the object names `field`, which was written.
    """
    if not isinstance(given, Mapping) or not isinstance(given.get(field), Mapping):
        return given
    read: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, kind])  # type: ignore[valid-type]
    found = read.validate_python({field: given[field]}, strict=True)[field]
    return {**given, field: found.number, **found.beside}


def number_or(properties: Mapping[str, Any], required: Collection[str]) -> Callable[[dict[str, Any]], None]:
    """What changes the JSON Schema of a number in place so that it is a number or an object with these properties.

    A property that is None has the number's own schema.
    """

    def change(schema: dict[str, Any]) -> None:
        number = {name: schema.pop(name) for name in ("type", "minimum", "maximum")}
        own = {name: dict(number) if given is None else given for name, given in properties.items()}
        an_object = {"type": "object", "required": list(required), "additionalProperties": False, "properties": own}
        schema["anyOf"] = [number, an_object]

    return change
