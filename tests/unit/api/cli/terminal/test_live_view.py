"""The picture of a running job, as text."""

import io
from typing import Any

from rich.console import Console

from shardyard.api.cli.terminal.live_view import Picture, View
from shardyard.api.client import Event
from shardyard.service.schemas.step import Step


def step(number: int, **more: Any) -> dict[str, Any]:
    return {"step": number, "loss": 10.0 / number, "tokens_per_s": 41200.4, "step_s": 2.0, **more}


def event(kind: str, **data: Any) -> Event:
    return Event(kind, data, "0.0.0", 0.0)


def drawn(picture: Picture, width: int = 120) -> str:
    printed = io.StringIO()
    Console(file=printed, width=width).print(picture)
    return printed.getvalue()


def test_progress_time_left_and_the_course_of_the_loss() -> None:
    picture = Picture(100, "running")
    picture.before([Step(step=number, loss=10.0 / number) for number in range(1, 10)])
    picture.step(step(10))
    shown = drawn(picture)
    assert "running" in shown
    assert "10/100 · loss 1.0000 · 41,200 tokens/s · 3:00 left" in shown
    assert "loss  █▄▃▂▂▂▁▁▁▁  10.0000 → 1.0000" in shown


def test_the_first_and_the_newest_loss_stay_however_long_the_job_is() -> None:
    picture = Picture(5000, "running")
    for number in range(1, 3001):
        picture.step(step(number))
    assert "10.0000 → 0.0033" in drawn(picture)


def test_a_program_has_no_number_of_steps() -> None:
    assert drawn(Picture(0, "running")) == "running\n"


def test_the_times_over_ranks_name_the_slowest() -> None:
    picture = Picture(100, "running")
    picture.step(step(10, step_s_min=0.0701, step_s_max=0.08, slowest_rank=2))
    assert "step  70 ms to 80 ms over ranks · slowest: rank 2" in drawn(picture)


def test_bars_of_own_work_and_waiting_per_rank() -> None:
    picture = Picture(100, "running")
    picture.see(event("probe", step=2, busy_s=[0.02, 0.08], wait_s=[0.06, 0.0]))
    shown = drawn(picture, 80).splitlines()
    assert "ranks at step 2: compute time █, waiting ░" in shown[1]
    assert shown[2].strip() == "0  ██████████" + "░" * 30 + "  20 ms own, 60 ms waiting"
    assert shown[3].strip() == "1  " + "█" * 40 + "  80 ms own, 0 ms waiting"


def test_of_many_ranks_the_slowest_are_shown() -> None:
    picture = Picture(100, "running")
    own = [0.01] * 512
    own[300] = 0.5
    picture.see(event("probe", step=2, busy_s=own, wait_s=[0.0] * 512))
    shown = drawn(picture)
    assert len(shown.splitlines()) == 11
    assert "  300  " in shown
    assert "504 others worked for a shorter time" in shown


def test_the_last_incident_stays_and_nothing_is_wider_than_the_terminal() -> None:
    picture = Picture(100, "running")
    picture.see(event("incident", cause="hang", message="first"))
    picture.see(event("incident", cause="rank_lost", message="[bold]killed\x1b[2J " + "x" * 200 + "\nTraceback"))
    picture.see(event("state", state="recovering"))
    picture.step(step(10))
    shown = drawn(picture, 60)
    assert "recovering" in shown
    assert "rank_lost [bold]killed" in shown
    assert "first" not in shown and "Traceback" not in shown and "\x1b[2J" not in shown
    assert all(len(line) <= 60 for line in shown.splitlines())


def test_a_view_shows_the_step_and_remarks() -> None:
    printed = io.StringIO()
    with View(Console(file=printed, force_terminal=True, width=100), 50, "running") as view:
        view.step(step(25))
        view.note("a remark")
    assert "25/50" in printed.getvalue()
    assert "a remark" in printed.getvalue()
