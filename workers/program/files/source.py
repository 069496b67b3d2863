"""The source of a job's files: `s3://bucket/prefix`, `hf://[datasets/]org/name[@revision][/path]`, or a path that every node sees.

A source never holds credentials, because every user can read specs. Imports no torch.
"""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal
from urllib.parse import unquote

from ....strategies.layout import Refusal
from ...storage.uri import address, is_bucket, refuse_unreachable

HUB: Final = "hf://"
#: A name on the Hub: https://huggingface.co/docs/huggingface_hub/package_reference/utilities#huggingface_hub.utils.validate_repo_id
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_ON_HUB: Final = re.compile(
    rf"(?:(?P<type>datasets|models)/)?(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>[^/@?#]+))?(?:/(?P<path>[^?#]+))?"
)
#: The Hub's kinds of repositories, which no organisation can be named.
_KINDS: Final = frozenset({"datasets", "models", "spaces", "buckets"})
_REMEDY: Final = (
    "Name s3://bucket/prefix, hf://[datasets/]org/name[@revision][/path], or an absolute path that every node sees."
)

SourceKind = Literal["bucket", "hub", "path"]


@dataclass(frozen=True)
class Source:
    """Where files come from. `where`: the address in its one form."""

    kind: SourceKind
    where: str
    repo: str = ""  # of the Hub: organisation/name
    type: Literal["model", "dataset"] = "model"
    revision: str = ""  # branch, tag or commit; empty: the default branch
    path: str = ""  # file or folder of the repository; empty: all of it


def parse(text: str) -> Source:
    """The source that a spec names. Raises `Refusal`, whose message quotes nothing that may be a password."""
    if text.startswith(HUB):
        return _on_hub(text)
    where = address(text)
    if is_bucket(where):
        return Source("bucket", where)
    parts = where.split("/")
    if not where.startswith("/"):
        raise Refusal("", f"{where[:200]!r} is a relative path.", _REMEDY)
    if ".." in parts or where.strip("/") == "":
        raise Refusal("", f"{where[:200]!r} is no path of files.", "Name the folder or file itself, without '..'.")
    return Source("path", where.rstrip("/"))


def _on_hub(text: str) -> Source:
    found = _ON_HUB.fullmatch(text.removeprefix(HUB).rstrip("/"))
    path = (found["path"] or "") if found else ""
    if (
        found is None
        or found["repo"].partition("/")[0] in _KINDS
        or any(part in ("", ".", "..") for part in (path.split("/") if path else ()))
    ):
        raise Refusal(
            "", "This is not an address on the Hugging Face Hub.", "Name hf://[datasets/]org/name[@revision][/path]."
        )
    kind: Literal["model", "dataset"] = "dataset" if found["type"] == "datasets" else "model"
    return Source("hub", text.rstrip("/"), found["repo"], kind, unquote(found["revision"] or ""), path)


def refuse_missing_library(source: Source) -> None:
    """Raises `Refusal` if the library that reaches this source is not installed here."""
    if source.kind == "bucket":
        refuse_unreachable(source.where)
    if source.kind == "hub" and find_spec("huggingface_hub") is None:
        remedy = "Install it on every node: pip install 'shardyard[hub]'."
        raise Refusal("", f"{HUB}… needs the extra hub, which is not installed.", remedy)
