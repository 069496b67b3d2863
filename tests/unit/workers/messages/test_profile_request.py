"""A request for a profile crosses processes as JSON and back, and takes a bounded time."""

import json

import pytest

from shardyard.workers.messages.profile_request import MOST_SECONDS, Profile

PROFILE = Profile("profile-1", "cpu", 3, 5, "/files/job-1", 1000)


def test_a_request_is_read_as_it_was_written() -> None:
    assert Profile.from_json(json.loads(json.dumps(PROFILE.to_json()))) == PROFILE


@pytest.mark.parametrize("seconds", [0, MOST_SECONDS + 1])
def test_a_profile_takes_a_bounded_time(seconds: int) -> None:
    with pytest.raises(ValueError, match=f"1 to {MOST_SECONDS} seconds"):
        Profile.from_json(PROFILE.to_json() | {"seconds": seconds})


def test_a_kind_of_a_later_version_is_no_profile() -> None:
    """In the journal, no successor could read it."""
    with pytest.raises(ValueError, match="heap"):
        Profile.from_json(PROFILE.to_json() | {"kind": "heap"})
