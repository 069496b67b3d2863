"""What a token opens, and for how long."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from shardyard.api.http.authentication import (
    CLOCK_S,
    CODE_S,
    OWNER,
    SESSION_S,
    Actor,
    Authenticated,
    Authenticator,
    Keys,
)
from shardyard.api.peer import CLOSED
from shardyard.service.settings import Settings

TOKEN = "0123456789abcdef" * 4
OTHER = TOKEN[::-1]


def request(**headers: str) -> Request:
    sent = [(name.encode(), text.encode()) for name, text in headers.items()]
    return Request({"type": "http", "headers": sent})


async def redeemed(authenticator: Authenticator, code: str, user: int | None) -> Actor | None:
    """As `user` of this machine redeems a code."""

    async def user_of() -> int | None:
        return user

    return await authenticator.redeem(code, user_of)


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


@pytest.mark.parametrize(
    ("cookies", "signed_in"),
    [
        (["theirs={not one; OURS"], True),
        (["theirs=x", "OURS", "others=y"], True),  # as HTTP/2 sends them
        (["NAME=old;OURS"], True),
        (["OURS; NAME={}".format("x" * 2000)], True),
        (["OURS", 'NAME="\\"\\"\\""'], True),
        (['a="{}"; OURS'.format("\\" * 9000)], True),
        (["OURS; NAME=new"], False),  # the last one of a name
        (["xOURS", "NAME", "=OURS"], False),
        (['NAME="VALUE"'], False),
    ],
    ids=lambda given: str(given)[:40],
)
async def test_routes_see_no_cookies_but_sessions(cookies: list[str], signed_in: bool) -> None:
    authenticator, seen = Authenticator(Settings(token=TOKEN)), list[dict[str, str]]()
    keys = authenticator.keys
    value = keys.session(OWNER)

    async def app(scope: Any, *_: Any) -> None:
        seen.append(Request(scope).cookies)

    sent = [one.replace("OURS", "NAME=VALUE").replace("NAME", keys.cookie).replace("VALUE", value) for one in cookies]
    headers = [(b"accept", b"*/*"), *((b"cookie", one.encode()) for one in sent)]
    scope = {"type": "http", "path": "/healthz", "headers": headers}  # FastAPI parses the cookies of all routes
    await Authenticated(app, authenticator)(scope, None, None)  # type: ignore[arg-type]
    assert seen[0].keys() <= {keys.cookie}
    assert (seen[0].get(keys.cookie) == value) == signed_in


async def test_a_code_is_good_once_and_for_its_user(later: list[float]) -> None:
    authenticator = Authenticator(Settings(token=TOKEN))
    code = authenticator.keys.code(1000)
    assert await redeemed(authenticator, code, 1001) is None  # another user of this machine, who saw the link
    assert await redeemed(authenticator, code, 1000) == OWNER
    assert await redeemed(authenticator, code, 1000) is None
    assert await redeemed(authenticator, authenticator.keys.code(1000), None) == OWNER  # of another machine
    others = authenticator.keys.code(1000)
    assert await redeemed(authenticator, others, CLOSED) is None  # another user could use up each link so
    assert await redeemed(authenticator, others, 1000) == OWNER
    assert (
        await redeemed(authenticator, authenticator.keys.code(1000), 0) == OWNER
    )  # root, such as what forwards a port
    assert await redeemed(authenticator, authenticator.keys.code(None), 1001) == OWNER
    assert await redeemed(authenticator, authenticator.keys.session(OWNER), None) is None
    assert await redeemed(authenticator, "nonsense", None) is None
    late = authenticator.keys.code(None)
    later[0] = CODE_S + 2
    assert await redeemed(authenticator, late, None) is None
    later[0] = CODE_S + CLOCK_S + 2
    assert await redeemed(authenticator, late, None) is None
    assert len(authenticator._used) == 0  # nothing is kept longer than it must be


async def test_the_user_is_looked_up_for_valid_codes_of_one_user_alone() -> None:
    """The look reads the kernel's tables of all connections, and who sends a code may be anyone."""
    authenticator, looks, go_on = Authenticator(Settings(token=TOKEN)), list[int](), asyncio.Event()

    async def user_of() -> int | None:
        looks.append(1)
        await go_on.wait()
        return 1000

    code = authenticator.keys.code(1000)
    at_once = [asyncio.create_task(authenticator.redeem(code, user_of)) for _ in range(2)]
    await asyncio.sleep(0)
    go_on.set()
    assert [await one for one in at_once] == [OWNER, None] and len(looks) == 2
    for other in (code, "nonsense", Keys(OTHER).code(1000), authenticator.keys.code(None)):
        await authenticator.redeem(other, user_of)
    assert len(looks) == 2


async def test_a_restart_does_not_bring_a_used_code_back(later: list[float]) -> None:
    code = Authenticator(Settings(token=TOKEN)).keys.code(None)
    later[0] = 2.0
    assert await redeemed(Authenticator(Settings(token=TOKEN)), code, None) is None


async def test_replicas_of_one_token_know_each_others_sessions_and_codes() -> None:
    first, second = (Authenticator(Settings(token=TOKEN)) for _ in range(2))
    assert second.keys.actor_of(first.keys.session(OWNER)) == OWNER
    assert await redeemed(second, first.keys.code(None), None) == OWNER


async def test_a_replica_takes_what_one_whose_clock_is_ahead_has_made(later: list[float]) -> None:
    here = Authenticator(Settings(token=TOKEN))
    later[0] = CLOCK_S - 5.0
    session, code = here.keys.session(OWNER), here.keys.code(None)
    later[0] = CLOCK_S + 5.0
    too_far = here.keys.session(OWNER), here.keys.code(None)
    later[0] = 0.0
    assert here.keys.actor_of(session) == OWNER
    assert await redeemed(here, code, None) == OWNER
    assert here.keys.actor_of(too_far[0]) is None and await redeemed(here, too_far[1], None) is None
    for seconds in (0.0, CODE_S + 5.0):  # it is not too old yet by then
        later[0] = seconds
        assert await redeemed(here, code, None) is None


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
