"""Log lines over HTTP: a search, and the lines around a hit. And the stream of events, which has them too."""

import pytest

from shardyard.api.client import Client

from ..conftest import SPEC, Gang, Plane, ask, problem


def test_logs_are_searched_and_shown_about_a_hit(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC).id
    gang = Gang(plane, job)
    gang.log(0, 0, *(f"line {n}" for n in range(40)))
    gang.log(1, 0, "Traceback (most recent call last):")
    url = f"{plane.url}/v1/jobs/{job}/logs"
    answered = ask("GET", f"{url}/search", params={"text": "LINE 3", "limit": 4}).json()
    assert [one["text"] for one in answered["lines"]] == ["line 3", "line 30", "line 31", "line 32"]
    assert (answered["scanned_to"], answered["end"], answered["done"]) == (33, 41, False)
    answered = ask(
        "GET", f"{url}/search", params={"text": "line 3", "limit": 4, "after": answered["scanned_to"]}
    ).json()
    assert len(answered["lines"]) == 4 and not answered["done"]
    [hit] = ask("GET", f"{url}/search", params={"level": "error", "rank": 1}).json()["lines"]
    about = ask("GET", url, params={"around": hit["position"], "limit": 6}).json()
    assert [one["position"] for one in about["lines"]] == [38, 39, 40, 41]
    gang.emit(("log", {"rank": 0, "stream": "stderr", "first": 0, "lines": ["line on stderr"]}))
    [other] = ask("GET", f"{url}/search", params={"text": "line", "stream": "stderr"}).json()["lines"]
    assert (other["text"], other["stream"]) == ("line on stderr", "stderr")
    by_pattern = ask("GET", f"{url}/search", params={"text": r"^line \d$", "regex": True, "rank": 0}).json()["lines"]
    assert [one["text"] for one in by_pattern] == [f"line {n}" for n in range(10)]
    refused = problem(ask("GET", f"{url}/search", params={"text": "a)", "regex": True}), 422, "invalid_pattern")
    assert refused["errors"][0]["field"] == "text" and "unexpected )" in refused["detail"]
    for params in ({"stream": "stdin"}, {"level": "loud"}, {"text": "x" * 256}, {"limit": 501}):
        assert ask("GET", f"{url}/search", params=params).status_code == 422


def test_a_place_in_a_log_needs_the_jobs_id(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    Gang(plane, job.id).log(0, 0, *(f"line {n}" for n in range(4)))
    for path, params in (("logs", {"after": 1}), ("logs", {"around": 1}), ("logs/search", {"after": 1})):
        refused = problem(ask("GET", f"{plane.url}/v1/jobs/{job.name}/{path}", params=params), 422, "invalid_request")
        assert refused["errors"][0]["field"] == "job" and "GET /v1/jobs/NAME" in refused["errors"][0]["remedy"]
        assert ask("GET", f"{plane.url}/v1/jobs/{job.id}/{path}", params=params).json()["lines"]
    assert ask("GET", f"{plane.url}/v1/jobs/{job.name}/logs", params={"after": 0}).json()["lines"]


@pytest.mark.parametrize("cursor", ["1.0.0", "0.0.0.1"])
def test_a_cursor_of_events_needs_the_jobs_id(plane: Plane, client: Client, cursor: str) -> None:
    """A browser sends it again after a lost connection: the name may mean another job by then."""
    job = client.submit(SPEC)
    client.cancel(job.id)
    url = f"{plane.url}/v1/jobs"
    for given in ({"params": {"after": cursor}}, {"headers": {"Last-Event-ID": cursor}}):
        refused = problem(ask("GET", f"{url}/{job.name}/events", **given), 422, "invalid_request")
        assert refused["errors"][0]["field"] == "job" and refused["errors"][0]["remedy"]
        assert "event: end" in ask("GET", f"{url}/{job.id}/events", **given).text
    assert "event: end" in ask("GET", f"{url}/{job.name}/events", params={"after": "0.0.0"}).text
