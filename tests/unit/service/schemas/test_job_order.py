"""Orders of lists of jobs as users write them."""

import pytest

from shardyard.service.schemas.job_order import Order, Sort


@pytest.mark.parametrize(
    ("text", "sort"),
    [
        ("newest", Sort()),
        ("-name", Sort(Order.NAME, True)),
        ("duration", Sort(Order.DURATION)),
        ("-device_time", Sort(Order.DEVICE_TIME, True)),
        ("metric.val/acc.top-1", Sort(Order.METRIC, False, "val/acc.top-1")),
        ("-highest.-a b\n", Sort(Order.HIGHEST, True, "-a b\n")),
        ("lowest." + "é" * 200, Sort(Order.LOWEST, False, "é" * 200)),
    ],
)
def test_an_order_is_read(text: str, sort: Sort) -> None:
    assert Sort.parse(text) == sort


@pytest.mark.parametrize(
    "text", ["", "-", "loss", "-newest", "--name", "name\n", "metric", "metric.", "metric.a\0", "highest." + "a" * 201]
)
def test_another_text_is_no_order(text: str) -> None:
    assert Sort.parse(text) is None
