"""The dashboard's scripts stay small, so that it opens at once over a slow line."""

import gzip

from shardyard.api.http.dashboard_files import DIST

MOST = 200_000


def test_all_scripts_together_are_at_most_200_kb() -> None:
    scripts = list((DIST / "assets").glob("*.js"))
    assert scripts, "the dashboard is not built: run `make dashboard`"
    assert sum(len(gzip.compress(script.read_bytes())) for script in scripts) <= MOST
