"""MLflow's filters and orders: what is read, and where each wrong one is."""

from typing import Any

import pytest

from shardyard.workers.program.mlflow_fields import MlflowError
from shardyard.workers.program.mlflow_filter import MOST_FILTER, Attributes, Comparison, Order, read_filter, read_order

KNOWN = Attributes({"start_time": "start_time", "created": "start_time"}, {"run_id": "run_id", "run name": "run_name"})


def read(text: str) -> list[tuple[str, str, str, Any]]:
    return [(one.field.kind, one.field.key, one.operator, one.value) for one in read_filter(text, KNOWN)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("metrics.loss < 0.1", ("metric", "loss", "<", 0.1)),
        ("metric.loss>=-1e-3", ("metric", "loss", ">=", -0.001)),
        ("  metrics.a.b/c-d != .5  ", ("metric", "a.b/c-d", "!=", 0.5)),
        ("metrics.`val loss` = 1", ("metric", "val loss", "=", 1.0)),
        ('metrics."a > b" > 1', ("metric", "a > b", ">", 1.0)),
        ("`metrics`.`a.b` > 1", ("metric", "a.b", ">", 1.0)),
        ("`metrics`.loss > 1", ("metric", "loss", ">", 1.0)),
        ("params.lr = '0.01'", ("parameter", "lr", "=", "0.01")),
        ('param.lr = "0.01"', ("parameter", "lr", "=", "0.01")),
        ("parameters.`a b`='it''s AND so on'", ("parameter", "a b", "=", "it's AND so on")),
        ("tags.mlflow.source.name ilike '%Train_'", ("tag", "mlflow.source.name", "ILIKE", "%Train_")),
        ("tag.team is not  null", ("tag", "team", "IS NOT NULL", None)),
        ("params.lr IS NULL", ("parameter", "lr", "IS NULL", None)),
        ("attributes.run_id IN ('a', 'b')", ("attribute", "run_id", "IN", ("a", "b"))),
        ("run_id not in('a')", ("attribute", "run_id", "NOT IN", ("a",))),
        ("created > 1700000000000", ("attribute", "start_time", ">", 1_700_000_000_000.0)),
        ("`run name` LIKE 'a%'", ("attribute", "run_name", "LIKE", "a%")),
        ("run.start_time <= 3", ("attribute", "start_time", "<=", 3.0)),
        ("tags.and = 'AND'", ("tag", "and", "=", "AND")),
    ],
)
def test_a_comparison_is_read(text: str, found: tuple[str, str, str, Any]) -> None:
    assert read(text) == [found]


def test_comparisons_are_joined_by_and() -> None:
    found = read("metrics.a > 1 and params.b='x' AND tags.c IS NULL")
    assert [one[1] for one in found] == ["a", "b", "c"] and read("") == read("  \n") == []


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        ("metrics.a > 1 OR metrics.b > 2", "OR metrics.b > 2", "join comparisons with AND"),
        ("metrics.a > 1 metrics.b > 2", "metrics.b > 2", "join comparisons with AND"),
        ("(metrics.a > 1)", "(metrics.a > 1)", "name a field"),
        ("metrics.a > 1 AND", "", "name a field"),
        ("metrics.a", "", "compare the field"),
        ("metrics.a > '1'", "'1'", "compare metric 'a' with a number"),
        ("metrics.a > b", "b", "compare metric 'a' with a number"),
        ("metrics.a > 1b", "1b", "this is no name, number or text"),
        ("metrics.a == 1", "== 1", "compare metric 'a' with one of =, !=, >, >=, <, <="),
        ("metrics.a LIKE '1'", "LIKE '1'", "compare metric 'a' with one of ="),
        ("metrics.a IS NULL", "NULL", "compare metric 'a' with one of ="),
        ("params.a > 'x'", "> 'x'", "compare parameter 'a' with one of =, !=, LIKE, ILIKE, IN, NOT IN, IS NULL"),
        ("params.a = 1", "1", "text in single quotes"),
        ("params.a = x", "x", "text in single quotes"),
        ("params.a = 'x", "'x", "this is no name, number or text"),
        ("run_id IN ()", ")", "text in single quotes"),
        ("run_id IN ('a'", "", "a list of texts"),
        ("run_id IN 'a'", "'a'", "a list of texts"),
        ("run_id NOT 'a'", "'a'", "NOT is followed by IN"),
        ("run_id IS NULL", "NULL", "compare attribute 'run_id' with one of"),
        ("tags.a IS 3", "3", "IS is followed by NULL or NOT NULL"),
        ("color = 'red'", "color = 'red'", "no attribute 'color': use one of start_time, run_id, run_name"),
        ("colors.a = 'red'", "colors.a = 'red'", "a field is metrics.NAME"),
        ("datasets.name = 'a'", "datasets.name = 'a'", "a field is metrics.NAME"),
        ("metrics. > 1", "metrics. > 1", "a field is metrics.NAME"),
        ("metrics.`a`b > 1", "metrics.`a`b > 1", "a field is metrics.NAME"),
        ("metrics.a > 1; DROP", "; DROP", "this is no name, number or text"),
    ],
)
def test_an_error_says_where_and_why(text: str, where: str, why: str) -> None:
    with pytest.raises(MlflowError) as refused:
        read_filter(text, KNOWN)
    assert refused.value.code == "INVALID_PARAMETER_VALUE"
    at = f"at {where!r}" if where else "at its end"
    assert str(refused.value).startswith(f"filter {text!r}, {at}: ") and why in str(refused.value)


def test_a_long_filter_is_refused_and_a_strange_one_is_read_at_once() -> None:
    with pytest.raises(MlflowError, match="10,001 characters: send at most 10,000"):
        read_filter("x" * (MOST_FILTER + 1), KNOWN)
    for text in ("a" * MOST_FILTER, "`" * 9_999, "metrics." + "`a`" * 3000, "'" * 9_999, "1" * 9_999 + "x"):
        with pytest.raises(MlflowError):
            read_filter(text, KNOWN)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("metrics.loss", ("metric", "loss", False)),
        ("metrics.`val loss` DESC", ("metric", "val loss", True)),
        ("params.desc desc", ("parameter", "desc", True)),
        (" attributes.start_time  ASC ", ("attribute", "start_time", False)),
        ("Created DESC", None),
        ("metrics.loss down", None),
        ("metrics.loss DESC, params.lr", None),
        ("", None),
    ],
)
def test_an_order_is_read(text: str, found: tuple[str, str, bool] | None) -> None:
    if found is None:
        with pytest.raises(MlflowError, match=r"^order_by "):
            read_order(text, KNOWN)
        return
    order = read_order(text, KNOWN)
    assert isinstance(order, Order) and (order.field.kind, order.field.key, order.is_descending) == found


def test_what_is_read_is_plain_data() -> None:
    (found,) = read_filter("metrics.a > 1", KNOWN)
    assert found == Comparison(found.field, ">", 1.0) and found.field.is_number
