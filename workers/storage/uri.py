"""An address of storage: an absolute local path (also as `file:///path`), or `s3://bucket/prefix`; it never holds credentials.

Each machine that reads and writes finds a bucket's credentials in its environment, its files, or its instance's role. Imports no torch.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, Field

from ...strategies.layout import Refusal

BUCKET: Final = "s3://"


def address(given: str | Path) -> str:
    """The address in its one form. Raises `Refusal`, whose message never quotes what may be a password."""
    text = str(given)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    if scheme == "file" and rest.startswith("/"):
        return unquote(rest)
    if scheme != "s3":
        raise Refusal(
            "",
            f"{scheme!r} is not a known kind of storage.",
            "Name s3://bucket/prefix, or a path on a file system that all nodes see.",
        )
    return _in_bucket(text, rest)


def _in_bucket(text: str, rest: str) -> str:
    parts = urlsplit(text)
    if "@" in parts.netloc:
        remedy = "Name s3://bucket/prefix; credentials come from the workers' environment or role."
        raise Refusal("", "An address of storage holds no user and no password.", remedy)
    bucket, *folders = rest.rstrip("/").split("/")
    if not bucket or parts.query or parts.fragment or any(part in ("", ".", "..") for part in folders):
        raise Refusal("", "This is not an address in a bucket.", "Name s3://bucket/prefix, without ? and #.")
    return BUCKET + "/".join((bucket, *folders))


def refuse_unreachable(where: str) -> None:
    """Raises `Refusal` if the libraries that reach this storage are not installed."""
    if is_bucket(where) and find_spec("s3fs") is None:
        remedy = "Install it on every node and beside the API: pip install 'shardyard[s3]'."
        raise Refusal("", f"{BUCKET}… needs the extra s3, which is not installed.", remedy)


def below(where: str, name: str) -> str:
    """The address of a folder in another."""
    return f"{where.rstrip('/')}/{name}"


def is_bucket(where: str) -> bool:
    return where.startswith(BUCKET)


def _text(given: object) -> object:
    return address(given) if isinstance(given, str | Path) else given


#: An address in a spec or in settings.
Address = Annotated[str, BeforeValidator(_text)]
#: One below which a job writes its checkpoints.
Storage = Annotated[str, Field(max_length=1024), BeforeValidator(_text)]
