"""`shardyard secrets`: lists, sets and removes secrets."""

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from ...client import Client
from ...errors import InvalidParameter
from ..options import Json, Url
from ..terminal.screen import Screen, day


def secrets(
    set_: Annotated[
        str | None,
        typer.Option("--set", help="Store a secret of this name. Its text is asked for, or read from standard input."),
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="With --set: take the text from this file, as it is.")
    ] = None,
    remove: Annotated[str | None, typer.Option("--remove", help="Remove the secret of this name.")] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List the secrets that jobs can name in `secrets`; set or remove one. Values are never shown."""
    if from_file is not None and set_ is None:
        raise typer.BadParameter("--from-file needs --set NAME.")
    screen = Screen()
    with Client(url) as client:
        if set_ is not None:
            client.set_secret(set_, _text(set_, from_file))
            screen.hint(f"Jobs get it with this line in their specs: secrets: [{set_}]")
        if remove is not None:
            if remove not in {secret.name for secret in client.secrets()}:
                remedy = "See the names with: shardyard secrets"
                raise InvalidParameter(f"There is no secret {remove[:80]!r}.", field="--remove", remedy=remedy)
            client.remove_secret(remove)
        found = client.secrets()
    if json:
        screen.json([secret.model_dump(mode="json") for secret in found])
    elif found:
        rows = [(secret.name, secret.actor, day(secret.updated_at.timestamp())) for secret in found]
        screen.table(("NAME", "SET BY", "SET AT"), rows)
    else:
        screen.hint("No secret is stored. Store one with: shardyard secrets --set NAME")


def _text(name: str, file: Path | None) -> str:
    """The value: never an argument, which other users of the machine could read."""
    if file is None and sys.stdin.isatty():
        return getpass(f"Value of {name} (not shown): ")
    try:
        if file is not None:
            return file.read_bytes().decode()  # with the ends of lines that it has
        text = sys.stdin.read().removesuffix("\n")
        text.encode()  # in a locale without UTF-8 other bytes are surrogates
        return text
    except UnicodeError:
        where, field = ("Standard input", "--set") if file is None else (str(file), "--from-file")
        remedy = "Encode it, such as with base64."
        raise InvalidParameter(f"{where} is not text in UTF-8.", field=field, remedy=remedy) from None
