"""The pictures in README and docs: real pages of a real control plane with jobs that train, taken in a real browser.

    make screenshots

Each page in light and dark into `docs/images/`. Two jobs of the same model, one after the other, the second on two axes; that one loses a
rank, and one of its ranks is slow: what the pages are for is seen on them.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, expect

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness.chromium import chromium  # noqa: E402
from harness.control_plane import running_control_plane, until  # noqa: E402
from harness.page import signed_in  # noqa: E402

from shardyard import Client  # noqa: E402
from shardyard.api.client import ApiError  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1280, 860
PATIENCE_S, PATIENCE_MS = 300, 300_000
#: Enough steps for a curve that one sees learn.
STEPS: Final = 150
#: Milliseconds until the numbers of a page that is whole have come.
SETTLE_MS: Final = 3000


def spec(name: str, rate: float, layout: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """A small Llama on real text, some steps a second, that trains for as long as it is looked at."""
    train = {
        "model": {"preset": "nano", "layers": 4, "dim": 64, "heads": 4, "kv_heads": 2, "hidden": 128},
        "data": {"source": "python-stdlib", "seq_len": 128},
        "layout": layout,
        "probe": {"every": 50},
        "optimizer": {"lr": rate},
        "schedule": {"name": "cosine", "warmup": 20},
        "steps": 600,
        "global_batch": 16,
        "eval": {"every": 25, "batches": 2},
        "checkpoint": {"every": 50},
    }
    return {"name": name, "labels": dict(labels), "train": train}


def train(client: Client) -> dict[str, str]:
    """The jobs by their names, as the pictures want them."""
    wanted = {
        "llama-data": spec("llama-data", 3e-3, {"data": 2}, {"team": "language", "run": "baseline"}),
        "llama-mesh": spec(
            "llama-mesh",
            6e-3,
            {"data": 2, "pipeline": 2, "schedule": "1f1b", "micro_batch": 2},
            {"team": "language", "run": "two-axes"},
        ),
    }
    jobs = {"llama-data": client.submit(wanted["llama-data"]).wait(PATIENCE_S).id}
    jobs["llama-mesh"] = mesh = client.submit(wanted["llama-mesh"]).id
    until(lambda: step_of(client, mesh) >= 40, PATIENCE_S, "steps before the fault")
    client.inject_fault(mesh, "kill-rank", rank=2)
    until(lambda: step_of(client, mesh) >= 80, PATIENCE_S, "steps after the repair")
    client.inject_fault(mesh, "slow-rank", rank=3, delay_ms=100, duration_s=PATIENCE_S)
    until(lambda: step_of(client, mesh) >= STEPS, PATIENCE_S, "a curve worth a look")
    trace = client.trace(mesh, steps=3)
    until(lambda: client.traces(mesh).items[0].settled_at is not None, PATIENCE_S, f"trace {trace.id}")
    return jobs


def step_of(client: Client, job: str) -> int:
    return getattr(client.job(job).progress, "step", 0)


def pages(jobs: Mapping[str, str]) -> list[tuple[str, str, str | None]]:
    """Picture, address, and the heading of the section that it shows; None: the top of the page."""
    both, job = "&".join(f"job={job}" for job in jobs.values()), f"/jobs/{jobs['llama-mesh']}"
    inside = [
        ("ranks", f"{job}/ranks", "Ranks"),
        ("trace", f"{job}/traces", "Step trace"),
        ("incident", job, "Incidents"),
    ]
    return [("job", job, None), *inside, ("compare", f"/compare?{both}", None)]


def take(browser: Browser, url: str, token: str, jobs: Mapping[str, str]) -> None:
    for scheme in ("light", "dark"):
        looks: Any = {"color_scheme": scheme, "reduced_motion": "reduce"}
        context = signed_in(browser, url, token, viewport={"width": WIDTH, "height": HEIGHT}, **looks)
        page = context.new_page()
        for name, address, heading in pages(jobs):
            page.goto(address)
            expect(page.locator(".chart canvas, .rank-cell, .lanes").first).to_be_visible(timeout=PATIENCE_MS)
            page.wait_for_timeout(SETTLE_MS)
            region = page if heading is None else page.get_by_role("region", name=heading, exact=True)
            region.screenshot(path=IMAGES / f"{name}-{scheme}.png", animations="disabled")
        context.close()


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with running_control_plane(SHARDYARD_FAULT_INJECTION="true") as plane, plane.client() as client:
        jobs = train(client)
        with chromium() as browser:
            take(browser, client.url, plane.token, jobs)
        for job in jobs.values():
            with suppress(ApiError):  # on a fast machine it has ended
                client.cancel(job)


if __name__ == "__main__":
    main()
