"""A list of numbers in a spec, kept as a tuple. Imports no torch."""

from typing import Any, Final

from pydantic import BeforeValidator


def _of_json(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


#: Of a field that is a tuple. JSON has lists, which strict validation does not take for one: a stored spec could not be read again.
FromList: Final = BeforeValidator(_of_json)
