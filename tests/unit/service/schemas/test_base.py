"""Times and fields of values."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from shardyard.service.schemas.base import Timestamp, Value


class Placed(Value):
    at: Timestamp
    until: Timestamp | None = None


@pytest.mark.parametrize("seconds", [0, 1, 1_700_000_000.25, 33_000_000_000])
def test_unix_seconds_become_a_time_in_utc(seconds: float) -> None:
    assert Placed(at=seconds).at == datetime.fromtimestamp(seconds, UTC)
    assert Placed(at=seconds).at.utcoffset() == timedelta(0)


def test_a_time_survives_json() -> None:
    placed = Placed(at=1_700_000_000.25)
    assert placed.model_dump_json() == '{"at":"2023-11-14T22:13:20.250000Z","until":null}'
    assert Placed.model_validate_json(placed.model_dump_json()) == placed
    east = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert Placed(at=east).at == east


def test_a_value_is_frozen_and_ignores_fields_that_it_does_not_know() -> None:
    placed = Placed.model_validate({"at": 1, "where": "here"})
    assert not hasattr(placed, "where")
    with pytest.raises(ValidationError, match="frozen"):
        placed.at = datetime.now(UTC)  # type: ignore[misc]
