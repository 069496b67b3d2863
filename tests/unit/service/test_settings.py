from pathlib import Path

import pytest
from pydantic import ValidationError

from shardyard.service.errors import InvalidSetting
from shardyard.service.settings import Settings


def test_everything_lies_below_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path))
    settings = Settings()
    assert settings.database == f"sqlite+aiosqlite:///{tmp_path}/shardyard.db"
    assert (settings.storage, settings.cache) == (str(tmp_path / "checkpoints"), tmp_path / "cache")
    assert settings.ray_address is None and settings.max_ranks is None


def test_a_relative_database_file_counts_from_the_folder_of_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for given, found in (
        ("sqlite+aiosqlite:///data/own.db", f"sqlite+aiosqlite:///{tmp_path}/data/own.db"),
        ("sqlite+aiosqlite:////var/own.db", "sqlite+aiosqlite:////var/own.db"),
        ("sqlite+aiosqlite:///:memory:", "sqlite+aiosqlite:///:memory:"),
        ("postgresql+psycopg:///jobs", "postgresql+psycopg:///jobs"),
    ):
        monkeypatch.setenv("SHARDYARD_DATABASE_URL", given)
        assert Settings().database == found


def test_the_databases_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDYARD_DATABASE_URL", "postgresql+psycopg://me:pa55word@db/jobs")
    settings = Settings()
    assert settings.database == "postgresql+psycopg://me:pa55word@db/jobs"
    for shown in (repr(settings), str(settings), settings.model_dump_json(), settings.database_shown):
        assert "pa55word" not in shown


def test_secrets_among_the_urls_options_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "SHARDYARD_DATABASE_URL", "postgresql+psycopg://me@db/jobs?password=pa55word&sslmode=require&sslpassword=geheim"
    )
    assert Settings().database_shown == "postgresql+psycopg://me@db/jobs?sslmode=require"


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_variable_is_an_unset_one_where_it_is_no_choice(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blank path would be the current folder, and a blank host all interfaces."""
    optional = ("RAY_ADDRESS", "SCRATCH", "TOKEN_PATH", "MAX_RANKS", "URL")
    names = [f"SHARDYARD_{name}" for name in (*optional, "DATA_DIR", "STORAGE", "CACHE", "HOST")]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    unset = Settings()
    for name in names:
        monkeypatch.setenv(name, blank)
    assert Settings() == unset


def test_settings_are_frozen_and_checked() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1
    with pytest.raises(InvalidSetting):
        Settings(lease_s=0)


#: A bad value of each setting that can have one, by the end of its variable's name.
BAD = {
    **dict.fromkeys(
        ("PORT", "CPU_RANKS_PER_CORE", "MAX_RANKS", "CORDON_FAULTS", "OPERATIONS_AT_ONCE"), ("x", "-1", "1e99")
    ),
    **dict.fromkeys(
        ("LEASE_S", "POLL_S", "PULL_S", "NODES_S", "STRAY_GANGS_S", "CANCEL_S", "RESHARD_S"), ("soon", "0", "-1")
    ),
    **dict.fromkeys(
        ("RETRY_BACKOFF_S", "RETRY_BACKOFF_MAX_S", "CORDON_WINDOW_S", "CORDON_S", "CORDON_MAX_S", "OPERATION_S"),
        ("", "-1"),
    ),
    **dict.fromkeys(("KEEP_LOGS_GIB", "KEEP_TRACES_GIB"), ("10GB", "-1", "inf", "nan", "")),
    **dict.fromkeys(("LOCAL_FILES", "FAULT_INJECTION", "INSECURE_ALLOW_REMOTE"), ("maybe", "2")),
    **dict.fromkeys(("DATA_DIR", "CACHE", "TOKEN_PATH", "RAY_AUTH_TOKEN_PATH", "HEARTBEAT_PATH"), ("~no-such-user/a",)),
    "STORAGE": ("~no-such-user/a", "gs://bucket", "s3://"),
    "CLUSTER": ("No. 2", "-a", "a" * 64),
    "CAPACITY": ("2 nodes", "[" * 100_000, '[{"nodes": -1}]'),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_said_in_one_line_that_names_the_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SHARDYARD_{name}", value)
    with pytest.raises(InvalidSetting) as refused:
        Settings()
    assert refused.value.field == f"SHARDYARD_{name}" and refused.value.field in refused.value.message
    assert "\n" not in refused.value.message and f"SHARDYARD_{name}" in (refused.value.remedy or "")


def test_every_bad_value_is_said_and_none_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDYARD_PORT", "geheim")
    monkeypatch.setenv("SHARDYARD_LEASE_S", "geheim")
    with pytest.raises(InvalidSetting, match=r"SHARDYARD_PORT: .*; SHARDYARD_LEASE_S: ") as refused:
        Settings()
    assert "geheim" not in f"{refused.value.message} {refused.value.remedy}"
