"""The longest duration of a job, as users write it."""

from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.service.policy_spec import CommandPolicy, Policy


@pytest.mark.parametrize("kind", [Policy, CommandPolicy])
@pytest.mark.parametrize(
    ("given", "stored"), [("8h", "8h"), ("1h30m", "1h30m"), (90, "90s"), (1.5, "1.5s"), (None, None)]
)
def test_a_number_is_of_seconds(kind: type[Policy | CommandPolicy], given: Any, stored: str | None) -> None:
    policy = kind.model_validate({"max_duration": given}, strict=True)
    assert policy.max_duration == stored
    assert kind.model_validate(policy.model_dump(mode="json")) == policy


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("8", "'8' is not a duration. Write 90s, 30m, 8h"),
        ("forever", "'forever' is not a duration"),
        ("0s", "'0s' is not between 1s and 3650d"),
        (0.5, "'0.5s' is not between 1s and 3650d"),
        ("4000d", "'4000d' is not between"),
        (float("inf"), "'infs' is not a duration"),
        (True, "valid string"),
    ],
)
def test_other_values_are_refused_with_a_remedy(given: Any, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Policy.model_validate({"max_duration": given})
