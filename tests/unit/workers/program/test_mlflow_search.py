"""Searches of MLflow clients: which match, in which order, and page by page; as in MLflow's own evaluation, which is installed here."""

import math
import re
from typing import Any, Final

import pytest
from mlflow.entities import Metric, Param, RunTag
from mlflow.entities import Run as MlflowRun
from mlflow.entities.run_data import RunData
from mlflow.entities.run_info import RunInfo
from mlflow.utils import search_utils

from shardyard.workers.program.mlflow_fields import MlflowError
from shardyard.workers.program.mlflow_filter import Attributes, read_filter, read_order
from shardyard.workers.program.mlflow_search import Searched, _like, matching, ordered, paged

#: Not typed.
THEIRS: Final[Any] = search_utils.SearchUtils
ATTRIBUTES: Final = Attributes(
    {"start_time": "start_time", "end_time": "end_time", "created": "start_time"},
    {name: name for name in ("run_id", "run_name", "status")},
)
RUNS: Final[list[tuple[str, dict[str, float], dict[str, str], dict[str, str]]]] = [
    ("a", {"loss": 0.3, "acc": 0.5}, {"lr": "0.1"}, {"team": "Vision", "note": "50% of_it"}),
    ("b", {"loss": math.nan}, {"lr": "0.01", "opt": "adam"}, {"team": "speech"}),
    ("c", {"loss": math.inf, "acc": -1.0}, {}, {"team": "vision"}),
    ("d", {}, {"lr": "1"}, {}),
    ("e", {"loss": 0.3, "acc": 0.7}, {"lr": "0.1", "opt": "sgd"}, {"note": "a\nb"}),
]


def ours() -> list[Searched[str]]:
    return [
        Searched(
            name,
            {
                "run_id": name,
                "run_name": f"run {name}",
                "status": "FINISHED",
                "start_time": at,
                "end_time": None if name == "d" else at + 5,
            },
            metrics,
            params,
            tags,
        )
        for at, (name, metrics, params, tags) in enumerate(RUNS)
    ]


def theirs() -> list[MlflowRun]:
    return [
        MlflowRun(
            RunInfo(
                run_id=name,
                run_name=f"run {name}",
                experiment_id="0",
                user_id="me",
                status="FINISHED",
                start_time=at,
                end_time=None if name == "d" else at + 5,
                lifecycle_stage="active",
            ),
            RunData(
                [Metric(key, value, 0, 0) for key, value in metrics.items()],
                [Param(*one) for one in params.items()],
                [RunTag(*one) for one in tags.items()],
            ),
        )
        for at, (name, metrics, params, tags) in enumerate(RUNS)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "metrics.loss < 0.5",
        "metrics.loss != 0.3",
        "metrics.loss = 0.3 AND metrics.acc > 0.6",
        "metrics.acc >= -1 AND params.lr LIKE '0%'",
        "params.lr != '0.1'",
        "params.opt IS NULL",
        "params.`opt` IS NOT NULL AND tags.team ILIKE 'SP%'",
        "tags.team LIKE 'v%'",
        "tags.team ilike '%ISI%'",
        "tags.note LIKE '50%'",
        "attributes.run_id IN ('a', 'e', 'x')",
        "run_id NOT IN ('a', 'e')",
        "status = 'FINISHED' AND created > 1",
        "end_time <= 8",
        "attribute.`run_name` LIKE '%d'",
    ],
)
def test_a_filter_finds_what_mlflow_finds(text: str) -> None:
    found = [one.item for one in matching(ours(), read_filter(text, ATTRIBUTES))]
    assert found == [run.info.run_id for run in THEIRS.filter(theirs(), text)]


@pytest.mark.parametrize(
    "orders",
    [
        ["metrics.loss"],
        ["metrics.loss DESC"],
        ["metrics.acc DESC", "params.lr"],
        ["params.lr DESC", "metrics.loss ASC"],
        ["tags.`team`"],
        ["attributes.end_time DESC"],
        ["attributes.start_time ASC"],
        [],
    ],
)
def test_an_order_is_mlflows(orders: list[str]) -> None:
    """But for metrics that are not a number in a descending order: MLflow's servers have them after all numbers, too."""
    newest = sorted(ours(), key=lambda one: -float(str(one.attributes["start_time"])))
    found = [one.item for one in ordered(newest, [read_order(one, ATTRIBUTES) for one in orders])]
    expected = [run.info.run_id for run in THEIRS.sort(theirs(), orders)]
    if orders == ["metrics.loss DESC"]:
        expected = ["c", "e", "a", "b", "d"]
    assert found == expected


def test_a_field_twice_in_an_order_is_refused() -> None:
    orders = [read_order(one, ATTRIBUTES) for one in ("metrics.loss", "params.loss", "metric.loss DESC")]
    with pytest.raises(MlflowError, match="order_by has metric 'loss' twice"):
        ordered(ours(), orders)


def test_pages_have_each_once() -> None:
    body: dict[str, Any] = {"max_results": 2}
    found: list[list[str]] = []
    while True:
        page, token = paged(ours(), body, 3)
        found.append(page)
        if not token:
            break
        body |= {"page_token": token["next_page_token"]}
    assert found == [["a", "b"], ["c", "d"], ["e"]]
    assert len(paged(ours(), {"max_results": 100}, 3)[0]) == len(paged(ours(), {}, 3)[0]) == 3
    assert paged(ours(), {"page_token": "99"}, 3) == ([], {})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"max_results": -1}, "max_results is -1: send a whole number from 1"),
        ({"max_results": "x"}, "max_results is 'x'"),
        ({"page_token": "x"}, "page_token is 'x': send the next_page_token"),
        ({"page_token": 3}, "page_token is 3"),
        ({"page_token": "-1"}, "page_token is '-1'"),
    ],
)
def test_a_page_that_cannot_be_is_refused(body: dict[str, Any], why: str) -> None:
    with pytest.raises(MlflowError, match=f"^{re.escape(why)}"):
        paged(ours(), body, 3)


@pytest.mark.parametrize(
    "pattern", ["", "%", "%%", "a", "a%", "%a", "%a%", "a%a", "_", "_%", "%_", "a_b", "%a_%b", "ab%ab", "%.%"]
)
def test_like_is_that_of_sql(pattern: str) -> None:
    """Compared with a pattern of `re` for every short text."""
    parts = {"%": ".*", "_": "."}
    naive = re.compile("".join(parts.get(one) or re.escape(one) for one in pattern), re.DOTALL)
    matches = _like(pattern, re.NOFLAG)
    texts = [""]
    for _ in range(5):
        texts += [text + one for text in texts if len(text) == max(map(len, texts)) for one in "ab.\n"]
    assert len(texts) > 1000
    for text in texts:
        assert matches(text) == (naive.fullmatch(text) is not None), text


def test_a_pattern_with_many_parts_takes_no_long_time() -> None:
    """With a backtracking search this would not end."""
    assert not _like("%a" * 2000 + "%b", re.IGNORECASE)("A" * 20_000)
    assert _like("%a" * 2000 + "%b", re.IGNORECASE)("A" * 20_000 + "B")
