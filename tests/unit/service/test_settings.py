from pathlib import Path

import pytest
from pydantic import ValidationError

from shardyard.service.settings import Settings


def test_everything_lies_below_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDYARD_DATA_DIR", str(tmp_path))
    settings = Settings()
    assert settings.database == f"sqlite+aiosqlite:///{tmp_path}/shardyard.db"
    assert (settings.storage, settings.cache) == (str(tmp_path / "checkpoints"), tmp_path / "cache")
    assert settings.ray_address is None and settings.max_ranks is None


def test_the_databases_password_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDYARD_DATABASE_URL", "postgresql+psycopg://me:secret@db/jobs")
    settings = Settings()
    assert settings.database == "postgresql+psycopg://me:secret@db/jobs"
    for shown in (repr(settings), str(settings), settings.model_dump_json(), settings.database_shown):
        assert "secret" not in shown


def test_settings_are_frozen_and_checked() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1
    with pytest.raises(ValidationError):
        Settings(lease_s=0)
