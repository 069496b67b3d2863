"""The access token's file: made once, by its owner, for its owner's eyes."""

import os
import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardyard.api import access_token
from shardyard.api.access_token import TokenFile, token_file
from shardyard.api.errors import TokenUnreadable, WeakToken
from shardyard.service.settings import Settings

STRONG = "0123456789abcdef" * 4


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "token", own=True)


def test_it_is_made_once(file: TokenFile) -> None:
    before = os.umask(0)
    try:
        file.make()
    finally:
        os.umask(before)
    token = file.read()
    assert re.fullmatch(r"[\w-]{43}", token)  # 256 bits in base64
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    file.make()
    assert file.read() == token
    assert [path.name for path in file.path.parent.iterdir()] == ["token"]


def test_of_many_makers_one_wins_and_all_read_the_same(file: TokenFile) -> None:
    ready = threading.Barrier(8)

    def make(_: int) -> str:
        ready.wait(60)
        file.make()
        return file.read()

    with ThreadPoolExecutor(8) as makers:
        assert set(makers.map(make, range(8))) == {file.read()}
    assert [path.name for path in file.path.parent.iterdir()] == ["token"]


def test_a_new_one_takes_its_place_at_once(file: TokenFile) -> None:
    file.make()
    before, version = file.read(), file.version()
    file.replace()
    assert file.read() != before and file.version() != version
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_its_place_is_not_followed(file: TokenFile, tmp_path: Path, there: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    if there:
        elsewhere.write_text(STRONG)
    file.path.symlink_to(elsewhere)
    file.make()
    with pytest.raises(TokenUnreadable):
        file.read()
    assert elsewhere.exists() == there
    file.replace()
    assert not file.path.is_symlink() and file.read()


def test_one_that_others_could_read_is_not_used(file: TokenFile) -> None:
    file.make()
    file.path.chmod(0o640)
    with pytest.raises(TokenUnreadable) as refusal:
        file.read()
    assert refusal.value.remedy == "Make a new one with: shardyard token --rotate"


def test_what_is_no_file_does_not_hold_anybody_up(file: TokenFile) -> None:
    os.mkfifo(file.path)
    with pytest.raises(TokenUnreadable, match="regular"):
        file.read()


@pytest.mark.parametrize("text", ["", "short", "a" * 31, "two words " * 8, "ü" * 40, "x" * 513, "a" * 40 + "\nb"])
def test_what_could_be_guessed_is_no_token(tmp_path: Path, text: str) -> None:
    given = TokenFile(tmp_path / "given", own=False)
    given.path.write_text(text)
    with pytest.raises(WeakToken) as refusal:
        given.read()
    assert "openssl rand" in (refusal.value.remedy or "")
    assert "two words" not in refusal.value.message


def test_a_mounted_secret_is_read_through_its_links(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Kubernetes mounts a Secret's key as a link to a link, root's, readable by the pod's group."""
    (tmp_path / "..data").mkdir()
    secret = tmp_path / "..data" / "token"
    secret.write_text(STRONG + "\n")
    secret.chmod(0o440)
    link = tmp_path / "token"
    link.symlink_to("..data/token")
    assert TokenFile(link, own=False).read() == STRONG
    assert caplog.text == ""
    secret.chmod(0o444)
    assert TokenFile(link, own=False).read() == STRONG
    assert "chmod 600" in caplog.text and STRONG not in caplog.text


def test_what_is_given_goes_before(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text(STRONG)
    settings = Settings(data_dir=tmp_path / "data")
    assert access_token.given(settings) is None
    assert token_file(settings) == TokenFile(tmp_path / "data" / "token", own=True)
    named = settings.model_copy(update={"token_path": path})
    assert access_token.given(named) == STRONG and not token_file(named).own
    both = Settings(token_path=path, token=STRONG[::-1])
    assert access_token.given(both) == STRONG[::-1]
    assert STRONG[::-1] not in repr(both) + both.model_dump_json()
