"""When a question is asked again, and how a stream's reader keeps its place, without any connection."""

import httpx2
import pytest

from shardyard.api.client.transport import PAUSES, ApiError, Event, Place, Tries, Unreachable


def answer(status: int) -> httpx2.Response:
    return httpx2.Response(status)


def test_a_server_that_is_starting_is_asked_again_with_longer_pauses() -> None:
    tries = Tries("http://x", 5)
    assert [tries.again(answer(503)) for _ in range(5)] == [*PAUSES, None]


@pytest.mark.parametrize("status", [200, 201, 404, 409, 422, 500])
def test_an_answer_that_counts_ends_it(status: int) -> None:
    assert Tries("http://x", 5).again(answer(status)) is None


def test_a_cut_connection_is_tried_again_and_then_reported() -> None:
    tries = Tries("http://x", 3)
    assert [tries.failed(httpx2.ReadError("cut")) for _ in range(2)] == list(PAUSES[:2])
    with pytest.raises(Unreachable, match="http://x"):
        tries.failed(httpx2.ReadError("cut"))


def test_where_nothing_listens_is_said_at_once_but_not_after_an_answer() -> None:
    with pytest.raises(Unreachable):
        Tries("http://x", 5).failed(httpx2.ConnectError("refused"))
    tries = Tries("http://x", 5)
    tries.again(answer(502))
    assert tries.failed(httpx2.ConnectError("it restarts")) == PAUSES[1]


def test_one_try_is_one() -> None:
    with pytest.raises(Unreachable):
        Tries("http://x", 1).failed(httpx2.ReadTimeout("slow"))
    assert Tries("http://x", 1).again(answer(503)) is None


def test_a_place_goes_on_after_the_last_event_and_loses_patience_only_without_one() -> None:
    warnings: list[ApiError] = []
    place, error = Place("1.0.0", 1e9, warnings.append), Unreachable("http://x", "gone")
    assert place.headers == {"Last-Event-ID": "1.0.0"}
    assert [place.lost(error) for _ in range(5)] == [*PAUSES, PAUSES[-1]]
    assert len(warnings) == 4  # the first loss may be nothing
    place.seen(Event("step", {}, "1.7.0", None))
    assert place.headers == {"Last-Event-ID": "1.7.0"}
    assert place.lost(error) == PAUSES[0]
    assert Place(None, 1.0).headers == {}


def test_patience_is_for_one_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without events is heard by its comments alone."""
    clock = [0.0]
    monkeypatch.setattr("shardyard.api.client.transport.time.monotonic", lambda: clock[0])
    place, error = Place(None, 300.0), Unreachable("http://x", "gone")
    for clock[0] in (0.0, 400.0, 800.0):
        place.lost(error)
        place.heard()
    place.lost(error)
    clock[0] = 1200.0
    with pytest.raises(Unreachable):
        place.lost(error)


def test_patience_ends() -> None:
    place, error = Place(None, -1.0), Unreachable("http://x", "gone")
    with pytest.raises(Unreachable):
        place.lost(error)
