import pytest
from sqlalchemy.engine import make_url

from shardyard.service.database_url import prepared, shown
from shardyard.service.errors import InvalidDatabase

URL = "postgresql+psycopg://me@db/jobs"


@pytest.mark.parametrize(
    ("query", "arguments"), [("", {}), ("none", {"prepare_threshold": None}), ("0", {"prepare_threshold": 0})]
)
def test_psycopg_prepares_statements_as_the_url_says(query: str, arguments: dict[str, int | None]) -> None:
    url = make_url(f"{URL}?sslmode=require" + (f"&prepare_threshold={query}" if query else ""))
    rest, given = prepared(url)
    assert str(rest) == f"{URL}?sslmode=require" and given == arguments


@pytest.mark.parametrize("wrong", ["never", "-1", "1&prepare_threshold=2"])
def test_any_other_threshold_is_refused_with_a_remedy(wrong: str) -> None:
    with pytest.raises(InvalidDatabase, match="prepare_threshold") as refused:
        prepared(make_url(f"{URL}?prepare_threshold={wrong}"))
    assert "prepare_threshold=none" in (refused.value.remedy or "")


def test_secrets_are_not_shown() -> None:
    shown_url = shown(
        make_url("postgresql+psycopg://me:geheim@db/jobs?password=geheim&sslpassword=geheim&connect_timeout=2")
    )
    assert shown_url == "postgresql+psycopg://me:***@db/jobs?connect_timeout=2"
