"""Debian's Chromium, without a window; closed whatever happens."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from .patience import PATIENCE_MS

PROGRAM = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Raises FileNotFoundError, with the remedy, where there is none."""
    if not Path(PROGRAM).exists():
        raise FileNotFoundError("there is no Chromium: run `make system-deps`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=FLAGS, timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            browser.close()
