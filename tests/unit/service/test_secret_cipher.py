import base64
import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from shardyard.service.errors import SecretsKeyUnusable
from shardyard.service.secret_cipher import opened, seal
from shardyard.service.settings import Settings

VALUE = "hf_abcdefgh"


def key() -> str:
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def by(*keys: str) -> Settings:
    return Settings(secrets_key=SecretStr(",".join(keys)))


def test_the_data_folder_has_a_key_of_its_own(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with pytest.raises(SecretsKeyUnusable, match="No such file"):
        opened(settings, "TOKEN", b"")
    sealed = seal(settings, "TOKEN", VALUE)
    assert VALUE.encode() not in sealed and opened(Settings(data_dir=tmp_path), "TOKEN", sealed) == VALUE
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "secrets.key").chmod(0o644)
    with pytest.raises(SecretsKeyUnusable, match="Other users may have read it"):
        seal(settings, "TOKEN", VALUE)


def test_a_key_is_replaced_while_both_are_given() -> None:
    old, new = key(), key()
    sealed = seal(by(old), "TOKEN", VALUE)
    assert opened(by(new, old), "TOKEN", sealed) == VALUE
    with pytest.raises(SecretsKeyUnusable, match="TOKEN was encrypted by another key"):
        opened(by(new), "TOKEN", sealed)
    assert opened(by(new), "TOKEN", seal(by(new, old), "TOKEN", VALUE)) == VALUE


@pytest.mark.parametrize("text", ["", "short", "x" * 43, None])
def test_a_key_that_cannot_be_used_is_explained(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SecretsKeyUnusable) as refused:
        seal(Settings(secrets_key_path=file), "TOKEN", VALUE)
    assert "SHARDYARD_SECRETS_KEY" in (refused.value.remedy or "") and VALUE not in refused.value.message
    with pytest.raises(SecretsKeyUnusable, match="It cannot be made: No such file or directory"):
        seal(Settings(data_dir=tmp_path / "none"), "TOKEN", VALUE)
