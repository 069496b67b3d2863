"""A job in a notebook: its HTML, and a view that is drawn again with each event."""

import sys
import threading
from typing import Any
from xml.etree import ElementTree

import pytest
from harness.patience import PATIENCE_S

from shardyard.api.client import AsyncClient, Client

from ..conftest import SPEC, Gang, Plane, until


def test_a_notebook_shows_facts_and_curve(plane: Plane, client: Client) -> None:
    job = client.submit({**SPEC, "labels": {}})
    assert "<svg" not in job._repr_html_()  # nothing to draw yet
    gang = Gang(plane, job.id)
    gang.steps(1, 20)
    gang.emit(("eval", {"step": 20, "loss": 0.5, "unigram_loss": 3.0}))
    page = ElementTree.fromstring(job.refresh()._repr_html_())
    text = " ".join(page.itertext())
    assert "tiny" in text and job.id in text and "20 of 20" in text
    (line,) = page.iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert len(points) == 20
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert [y for _, y in points] == sorted(y for _, y in points)  # the loss falls: down is larger in SVG
    assert len(list(page.iter("{http://www.w3.org/2000/svg}circle"))) == 1
    plane.stop()
    assert "<svg" not in job._repr_html_()  # what was known is shown all the same


def test_a_job_of_a_closed_client_shows_what_was_known(plane: Plane) -> None:
    with Client(plane.url) as client:
        job = client.submit(SPEC)
        gang = Gang(plane, job.id)
        gang.steps(1, 20)
        gang.succeed()
        job = job.wait()
    page = job._repr_html_()
    assert job.id in page and "succeeded" in page and "<svg" not in page


class Page:
    """Records what is shown, as a notebook's cell would show it."""

    def __init__(self, first: Any) -> None:
        self.shown = [first._repr_html_()]

    def update(self, value: Any) -> None:
        self.shown.append(value._repr_html_())


def test_watch_draws_again_until_the_end(plane: Plane, client: Client) -> None:
    job = client.submit(SPEC)
    pages: list[Page] = []

    def display(value: Any) -> Page:
        pages.append(Page(value))
        return pages[0]

    ended: list[Any] = []
    watching = threading.Thread(target=lambda: ended.append(job.watch(0.0, display)), daemon=True)
    watching.start()
    gang = Gang(plane, job.id)
    gang.steps(1, 5)
    until(lambda: bool(pages) and "5 of 20" in pages[0].shown[-1], PATIENCE_S)
    gang.steps(6, 20)
    gang.succeed()
    watching.join(PATIENCE_S)
    assert ended[0].state == "succeeded"
    assert "succeeded" in pages[0].shown[-1] and "<svg" in pages[0].shown[-1]


async def test_watch_awaits_what_it_draws(plane: Plane, client: Client) -> None:
    gang = Gang(plane, client.submit(SPEC).id)
    gang.steps(1, 20)
    gang.succeed()
    pages: list[Page] = []

    def display(value: Any) -> Page:
        pages.append(Page(value))
        return pages[0]

    async with AsyncClient(plane.url) as asking:
        ended = await (await asking.job("tiny")).watch(0.0, display)
    assert ended.state == "succeeded"
    assert "<svg" in pages[0].shown[0] and "<svg" in pages[0].shown[-1]


def test_watch_without_a_notebook_says_what_to_type(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    job = client.submit(SPEC)
    with pytest.raises(ImportError, match="shardyard watch"):
        job.watch()
