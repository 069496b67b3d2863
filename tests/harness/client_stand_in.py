"""What stands in for a command's client where the service's answers are given."""

from typing import Self


class ClientStandIn:
    """A subclass has the calls that the command makes."""

    def __init__(self, url: str | None) -> None:
        del url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return
