"""What a token opens, and for how long."""

import time
from pathlib import Path

import pytest
from starlette.requests import Request

from shardyard.api.http.authentication import CLOCK_S, CODE_S, OWNER, SESSION_S, Authenticator, Keys
from shardyard.service.settings import Settings

TOKEN = "0123456789abcdef" * 4
OTHER = TOKEN[::-1]


def request(**headers: str) -> Request:
    sent = [(name.encode(), text.encode()) for name, text in headers.items()]
    return Request({"type": "http", "headers": sent})


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds by which both clocks are set forward."""
    ahead, wall, steady = [0.0], time.time, time.monotonic
    monkeypatch.setattr(time, "time", lambda: wall() + ahead[0])
    monkeypatch.setattr(time, "monotonic", lambda: steady() + ahead[0])
    return ahead


@pytest.fixture
def found(tmp_path: Path) -> Authenticator:
    """With a token file that the data folder's control plane has made."""
    authenticator = Authenticator(Settings(data_dir=tmp_path))
    authenticator.load()
    return authenticator


def test_the_token_itself_is_not_kept() -> None:
    keys = Keys(TOKEN)
    assert TOKEN not in repr(vars(keys))
    assert keys.fits(TOKEN) and not keys.fits(OTHER) and not keys.fits("")


@pytest.mark.parametrize(
    ("header", "actor"),
    [
        (f"Bearer {TOKEN}", OWNER),
        (f"bearer  {TOKEN} ", OWNER),
        (f"Bearer {OTHER}", None),
        (f"Bearer {TOKEN}x", None),
        (f"Bearer {TOKEN[:-1]}", None),
        ("Bearer", None),
        (f"Basic {TOKEN}", None),
        (TOKEN, None),
        ("Bearer \xfc\xff", None),
    ],
)
def test_a_request_is_its_tokens(header: str, actor: object) -> None:
    assert Authenticator(Settings(token=TOKEN)).actor_of(request(authorization=header)) == actor


def test_a_session_lives_for_its_time_and_with_its_token(later: list[float]) -> None:
    authenticator = Authenticator(Settings(token=TOKEN))
    keys = authenticator.keys
    cookie = f"theirs={{not one; {keys.cookie}={keys.session(OWNER)}"
    assert authenticator.actor_of(request(cookie=cookie)) == OWNER
    assert authenticator.actor_of(request(cookie=cookie, authorization="Basic of-a-proxy")) == OWNER
    assert authenticator.actor_of(request(cookie=cookie, authorization=f"Bearer {OTHER}")) is None
    assert Keys(OTHER).cookie != keys.cookie
    assert Keys(OTHER).actor_of(keys.session(OWNER)) is None
    assert keys.actor_of("A" + keys.session(OWNER)) is None
    assert keys.actor_of(keys.code(None)) is None
    later[0] = SESSION_S + 2
    assert authenticator.actor_of(request(cookie=cookie)) is None


def test_a_code_is_good_once_and_for_its_user(later: list[float]) -> None:
    authenticator = Authenticator(Settings(token=TOKEN))
    code = authenticator.keys.code(1000)
    assert authenticator.redeem(code, 1001) is None  # another user of this machine, who saw the link
    assert authenticator.redeem(code, 1000) == OWNER
    assert authenticator.redeem(code, 1000) is None
    assert authenticator.redeem(authenticator.keys.code(1000), None) == OWNER  # of another machine
    assert authenticator.redeem(authenticator.keys.code(1000), 0) == OWNER  # root, such as what forwards a port
    assert authenticator.redeem(authenticator.keys.code(None), 1001) == OWNER
    assert authenticator.redeem(authenticator.keys.session(OWNER), None) is None
    assert authenticator.redeem("nonsense", None) is None
    late = authenticator.keys.code(None)
    later[0] = CODE_S + 2
    assert authenticator.redeem(late, None) is None
    later[0] = CODE_S + CLOCK_S + 2
    assert authenticator.redeem(late, None) is None
    assert len(authenticator._used) == 0  # nothing is kept longer than it must be


def test_a_restart_does_not_bring_a_used_code_back(later: list[float]) -> None:
    code = Authenticator(Settings(token=TOKEN)).keys.code(None)
    later[0] = 2.0
    assert Authenticator(Settings(token=TOKEN)).redeem(code, None) is None


def test_replicas_of_one_token_know_each_others_sessions_and_codes() -> None:
    first, second = (Authenticator(Settings(token=TOKEN)) for _ in range(2))
    assert second.keys.actor_of(first.keys.session(OWNER)) == OWNER
    assert second.redeem(first.keys.code(None), None) == OWNER


def test_a_replica_takes_what_one_whose_clock_is_ahead_has_made(later: list[float]) -> None:
    here = Authenticator(Settings(token=TOKEN))
    later[0] = CLOCK_S - 5.0
    session, code = here.keys.session(OWNER), here.keys.code(None)
    later[0] = CLOCK_S + 5.0
    too_far = here.keys.session(OWNER), here.keys.code(None)
    later[0] = 0.0
    assert here.keys.actor_of(session) == OWNER
    assert here.redeem(code, None) == OWNER
    assert here.keys.actor_of(too_far[0]) is None and here.redeem(too_far[1], None) is None
    for seconds in (0.0, CODE_S + 5.0):  # it is not too old yet by then
        later[0] = seconds
        assert here.redeem(code, None) is None


def test_a_new_token_holds_within_a_second(found: Authenticator, tmp_path: Path, later: list[float]) -> None:
    from shardyard.api.access_token import TokenFile

    file = TokenFile(tmp_path / "token", own=True)
    before, session = file.read(), found.keys.session(OWNER)
    file.replace()
    later[0] += 1.1
    assert not found.keys.fits(before) and found.keys.fits(file.read())
    assert found.keys.actor_of(session) is None


@pytest.mark.parametrize("spoil", ["away", "no-folder", "weak", "open"])
def test_a_file_that_is_spoilt_leaves_the_token_in_force(
    found: Authenticator, tmp_path: Path, later: list[float], caplog: pytest.LogCaptureFixture, spoil: str
) -> None:
    path = tmp_path / "token"
    before = path.read_text().strip()
    if spoil == "no-folder":
        tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-gone"))
    elif spoil == "away":
        path.unlink()
        path.symlink_to(tmp_path / "nowhere")
    else:
        path.write_text("weak" if spoil == "weak" else OTHER)
        path.chmod(0o600 if spoil == "weak" else 0o644)
    for _ in range(3):
        later[0] += 1.1
        assert found.keys.fits(before)
    assert len(caplog.records) == 1 and before not in caplog.text and OTHER not in caplog.text
