"""Secrets are replaced in all that a rank prints, wherever the pipe's reads cut the text."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from shardyard.workers.rank.log_lines import MAX_LINE
from shardyard.workers.rank.log_pipe import Lines
from shardyard.workers.rank.secret_mask import SecretMask, secrets_of

KEY = "-----BEGIN KEY-----\nYWJjZGVm+/(.*)\nshort\n-----END KEY-----\n"


def test_values_and_their_lines_are_hidden() -> None:
    mask = SecretMask(["hf_abcdefgh", KEY])
    assert mask.hide(b"token=hf_abcdefgh;") == b"token=***;"
    assert mask.hide(b"YWJjZGVm+/(.*)") == b"***"
    assert mask.hide_in(f"KeyError: {KEY}") == "KeyError: ***"
    assert mask.hide(b"hf_abcdefg short") == b"hf_abcdefg short"
    assert mask.hide_in("\udcff hf_abcdefgh") == "\udcff ***"


def test_without_secrets_nothing_changes() -> None:
    mask = SecretMask()
    assert (mask.hide(b"anything"), mask.overlap) == (b"anything", 0)


def test_of_two_secrets_of_which_one_begins_with_the_other_nothing_is_left() -> None:
    assert SecretMask(["password", "password-2026"]).hide(b"password-2026 password") == b"*** ***"


def test_of_an_environment_the_values_whose_names_say_so_are_secret_and_paths_of_files_are_not(tmp_path: Path) -> None:
    """AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and HF_TOKEN among them. Such a path, in an error, says what is wrong."""
    secret = {
        name: f"value-of-{name}" for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "db_password")
    }
    other = {"PATH": "/usr/bin:/bin", "TOKENIZERS_PARALLELISM": "disabled", "AWS_REGION": "eu-central-1"}
    paths = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path), "RAY_AUTH_TOKEN_PATH": str(tmp_path)}
    assert secrets_of(secret | other | paths) == list(secret.values())


def test_a_secret_with_bytes_that_are_no_text_is_hidden_too() -> None:
    mask = SecretMask([os.fsdecode(b"k\xff-12345678"), "a-plain-secret"])
    assert mask.hide(b"k\xff-12345678 a-plain-secret") == b"*** ***"
    assert mask.hide_in_json(b'["a-plain-secret"]') == b'["***"]'


@pytest.mark.parametrize("seed", range(20))
async def test_a_secret_is_hidden_wherever_reads_and_long_lines_are_cut(seed: int) -> None:
    """A line without an end is passed on in pieces: a secret that lies across two of them is hidden, too."""
    draw, secret = random.Random(seed), "s3cr3t-" + "x" * 40
    text = b"".join(
        draw.choice([b"a" * draw.randrange(9000), secret.encode(), b"\n", b" is it\n"])
        for _ in range(draw.randrange(60))
    )
    reader, writer = os.pipe()
    lines = Lines(reader, MAX_LINE)
    lines.mask = SecretMask([secret])

    async def write() -> None:
        rest = text
        while rest:
            size = draw.randrange(1, 20_000)
            await asyncio.to_thread(os.write, writer, rest[:size])
            rest = rest[size:]
            await asyncio.sleep(0)
        os.close(writer)

    writing = asyncio.create_task(write())
    found: list[bytes] = []
    while (some := await lines.read()) is not None:
        found += some
    await writing
    os.close(reader)
    # Long lines come in several pieces, so line breaks are not compared.
    assert b"".join(found) == text.replace(secret.encode(), b"***").replace(b"\n", b"")
