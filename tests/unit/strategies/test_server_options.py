from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.strategies.layout import Layout, own_clocks
from shardyard.strategies.server_options import MOST_AHEAD, ParameterServer


@pytest.mark.parametrize(
    ("given", "ahead"),
    [
        ({}, None),
        ({"mode": "sync"}, None),
        ({"mode": "stale", "bound": 0}, 0),
        ({"mode": "stale", "bound": 3}, 3),
        ({"mode": "async"}, MOST_AHEAD),
    ],
)
def test_how_far_workers_may_be_ahead(given: dict[str, Any], ahead: int | None) -> None:
    options = ParameterServer.model_validate({"servers": 2, **given})
    assert options.ahead == ahead
    layout = Layout.model_validate({"data": 3, "parameter_server": {"servers": 2, **given}})
    assert own_clocks(layout) == (ahead is not None)
    assert layout.world_size == 5
    assert Layout.model_validate(layout.model_dump()) == layout


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mode": "stale"}, "mode stale needs a bound.*mode: async"),
        ({"mode": "async", "bound": 1}, "mode async has no bound.*set mode to stale"),
        ({"bound": 1}, "mode sync has no bound"),
        ({"mode": "stale", "bound": -1}, "greater than or equal to 0"),
        ({"mode": "stale", "bound": MOST_AHEAD + 1}, f"less than or equal to {MOST_AHEAD}"),
        ({"mode": "eager"}, "'sync', 'stale' or 'async'"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ParameterServer.model_validate({"servers": 1, **given})
