"""What the calls of a client say of their parameters."""

import inspect

import pytest

from shardyard.api.client import AsyncClient


def takes_a_position(name: str) -> bool:
    """Whether a call takes a position in the records of one job. Texts in `after` and `before` are ids and names."""
    parameters = inspect.signature(getattr(AsyncClient, name)).parameters
    places = [parameters[place] for place in ("after", "before") if place in parameters]
    return "job" in parameters and (
        not parameters.keys().isdisjoint(("position", "around"))
        or any(place.annotation in (int, int | None) for place in places)
    )


CALLS = sorted(name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction) if takes_a_position(name))


def test_positions_are_found() -> None:
    assert {"ranks", "checkpoints", "logs", "log_pages", "export_checkpoint"} <= set(CALLS)


@pytest.mark.parametrize("name", [*CALLS, "events"])
def test_a_call_with_a_position_says_that_it_needs_the_jobs_id(name: str) -> None:
    """The service refuses a name there."""
    assert "id, not its name" in (inspect.getdoc(getattr(AsyncClient, name)) or "")
