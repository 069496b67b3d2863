import base64
import itertools
import os
import re
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


@pytest.mark.parametrize("page", ["docs/how-to/secrets.md", "deploy/chart/shardyard/README.md"])
def test_the_steps_of_the_pages_never_make_a_secret_unreadable(page: str) -> None:
    """While a step is carried out, some processes have the keys of the step before."""
    text = (Path(__file__).resolve().parents[3] / page).read_text()
    given = re.findall(r"^ *\d\. (?:.* to `([A-Z,]+)`|Set each secret again).*$", text, re.MULTILINE)
    assert given == ["OLD,NEW", "NEW,OLD", "", "NEW"]
    keys = {"OLD": key(), "NEW": key()}
    stages = [by(*(keys[name] for name in names.split(","))) for names in ("OLD", *given) if names]
    again = stages[given.index("")]
    for before, after in itertools.pairwise(stages):
        for sets, reads in itertools.product((before, after), repeat=2):
            assert opened(reads, "TOKEN", seal(sets, "TOKEN", VALUE)) == VALUE
    assert opened(stages[-1], "TOKEN", seal(again, "TOKEN", VALUE)) == VALUE
    assert all(opened(stage, "TOKEN", seal(stages[0], "TOKEN", VALUE)) == VALUE for stage in stages[:-1])


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
