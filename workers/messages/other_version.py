"""Orders of another version of this package, which this version cannot read. Imports neither torch nor Ray."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import ValidationError

from ...version import __version__
from .rank_event import FailureFacts

#: Code of the cause: nodes and control plane have different versions.
OTHER_VERSION: Final = "other_version"


class OrdersUnreadable(Exception):
    """The attempt's orders do not fit this version's types. A control plane of the same version writes none of the kind."""

    facts: Final = FailureFacts(cause=OTHER_VERSION)

    def __init__(self, why: str) -> None:
        super().__init__(f"this node has Shardyard {__version__}, which cannot read the attempt's orders ({why})")


@contextmanager
def reading_orders() -> Iterator[None]:
    """Raise OrdersUnreadable for a field that is unknown, missing or of another type."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise OrdersUnreadable(f"{where}: {first['msg']}" if where else first["msg"]) from error
    except (TypeError, ValueError) as error:
        raise OrdersUnreadable(str(error)) from error
