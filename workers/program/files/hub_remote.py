"""Files of a repository of the Hugging Face Hub, at one commit, through `huggingface_hub`: its endpoint, its token, its cache.

A commit never changes. With HF_HUB_OFFLINE no request is sent, and the files are those in the node's Hugging Face cache. Imports
huggingface_hub at first use, which few jobs need.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

from .errors import FilesNotFetched
from .listing import MOST_FILES, Listing, RemoteFile, checked
from .remote import Damaged, Digest, Remote, Unanswered
from .source import Source

T = TypeVar("T")

#: Seconds for an answer, and for each wait for bytes.
ANSWER_S: Final = 30.0
_SHA256: Final = "sha256:"
_GIT: Final = "git:"
_PARTIAL: Final = 206
_TOO_MANY: Final = 429
_SERVER: Final = 500
#: `"resolvers";r=0;t=123`: no request is left for these seconds (https://huggingface.co/docs/hub/rate-limits).
_USED_UP: Final = re.compile(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)")
_MOST_WAIT_S: Final = 600.0


class HubRemote(Remote):
    """A repository, or a file or folder of it."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        from huggingface_hub import HfApi

        self._endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
        self._api = HfApi(endpoint=self._endpoint)

    def listing(self) -> Listing:
        if self._is_offline:
            return self._cached_listing()
        return self._asked(self._listed)

    def _listed(self) -> Listing:
        """The library's own functions for this send requests without a time-out."""
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        source, ask = self.source, get_session()
        commit = self._api.repo_info(
            source.repo, revision=source.revision or None, repo_type=source.type, timeout=ANSWER_S
        ).sha
        headers, about = build_hf_headers(), f"{self._api.endpoint}/api/{source.type}s/{source.repo}"
        named: list[dict[str, Any]] = []
        if source.path:
            body = {"paths": [source.path], "expand": False}
            answer = ask.post(f"{about}/paths-info/{commit}", data=body, headers=headers, timeout=ANSWER_S)
            hf_raise_for_status(answer)
            named = answer.json()
        single = bool(named and named[0]["type"] == "file")
        files = [self._found(one, single) for one in named if single]
        page = f"{about}/tree/{commit}/{quote(source.path)}".rstrip("/") + "?recursive=true&expand=false"
        if single or (source.path and not named):
            page = ""
        while page and len(files) <= MOST_FILES:
            answer = ask.get(page, headers=headers, timeout=ANSWER_S)
            hf_raise_for_status(answer)
            files += [self._found(one, single) for one in answer.json() if one["type"] == "file"]
            page = answer.links.get("next", {}).get("url", "")
        return checked(Listing(source.where, tuple(files), str(commit), single))

    def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> bytes:
        if self._is_offline:
            raise FilesNotFetched(
                f"{self.source.where}: {file.name} at commit {listing.revision} is not in this node's Hugging Face cache, and "
                "HF_HUB_OFFLINE is set; download it to the cache of every node, or unset HF_HUB_OFFLINE."
            )
        return self._asked(lambda: self._range(listing, file, start, end), file)

    def _range(self, listing: Listing, file: RemoteFile, start: int, end: int) -> bytes:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        source = self.source
        url = hf_hub_url(
            source.repo, file.name, repo_type=source.type, revision=listing.revision, endpoint=self._endpoint
        )
        headers = build_hf_headers() | {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        with get_session().stream("GET", url, headers=headers, timeout=ANSWER_S, follow_redirects=True) as answer:
            if answer.is_error:
                answer.read()  # it says what is wrong
            hf_raise_for_status(answer)
            if answer.status_code != _PARTIAL and file.bytes > end - start:
                raise FilesNotFetched(
                    f"{source.where}: {file.name}: the server sends no ranges of bytes; set another HF_ENDPOINT."
                )
            content: bytes = answer.read()
        if len(content) != end - start:
            raise Unanswered(f"{source.where}: {file.name}: the answer has {len(content):,} bytes of {end - start:,}.")
        return content

    def digest(self, file: RemoteFile) -> Digest:
        if file.check.startswith(_SHA256):
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % file.bytes, usedforsecurity=False)  # as git names a file's content

    def verify(self, file: RemoteFile, digest: str) -> None:
        if file.check.partition(":")[2] != digest:
            raise Damaged

    def cached(self, listing: Listing) -> Path | None:
        """The listed files in the node's Hugging Face cache, if all are there whole."""
        try:
            root = self._snapshot(listing.revision)
            whole = all((root / file.name).stat().st_size == file.bytes for file in listing.files)
        except OSError:
            return None
        return root / self.source.path if whole else None

    def _cached_listing(self) -> Listing:
        source = self.source
        try:
            root = self._snapshot(source.revision or "main")
        except (OSError, ValueError):  # also a name that the Hub takes for none
            raise FilesNotFetched(
                f"{source.where} is not in this node's Hugging Face cache, and HF_HUB_OFFLINE is set; download it to the cache of "
                "every node, or unset HF_HUB_OFFLINE."
            ) from None
        place = root / source.path
        single = place.is_file()
        paths = [place] if single else sorted(path for path in place.rglob("*") if path.is_file())
        files = [
            self._file(str(path.relative_to(root)), path.stat().st_size, _cached_check(path), single)
            for path in paths[: MOST_FILES + 1]
        ]
        return checked(Listing(source.where, tuple(files), root.name, single))

    def _snapshot(self, revision: str) -> Path:
        """The folder of a revision in the node's cache. Raises OSError if it is not there."""
        from huggingface_hub import snapshot_download

        path = self.source.path
        wanted = [path, f"{path}/*"] if path else None
        where = snapshot_download(
            self.source.repo,
            repo_type=self.source.type,
            revision=revision,
            allow_patterns=wanted,
            local_files_only=True,
        )
        return Path(str(where))

    @property
    def _is_offline(self) -> bool:
        from huggingface_hub import is_offline_mode

        return is_offline_mode()

    def _found(self, entry: dict[str, Any], single: bool) -> RemoteFile:
        """A file of the Hub's answer. Only a large one has a SHA-256."""
        large = entry.get("lfs")
        check = f"{_GIT}{entry['oid']}" if large is None else f"{_SHA256}{large['oid']}"
        return self._file(entry["path"], entry["size"], check, single)

    def _file(self, path: str, size: int, check: str, single: bool) -> RemoteFile:
        below = path.rpartition("/")[2] if single else path.removeprefix(f"{self.source.path}/")
        return RemoteFile(below, size, check, path)

    def _asked(self, ask: Callable[[], T], file: RemoteFile | None = None) -> T:
        """The answer. Raises FilesNotFetched, Unanswered."""
        from huggingface_hub.errors import (
            EntryNotFoundError,
            GatedRepoError,
            HfHubHTTPError,
            HTTPError,
            OfflineModeIsEnabled,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        where = self.source.where if file is None else f"{self.source.where}: {file.name}"
        try:
            return ask()
        except GatedRepoError:
            remedy = "ask for access on its page, and give the job the secret HF_TOKEN of an account that has it."
            raise FilesNotFetched(f"{where}: access is restricted; {remedy}") from None
        except RevisionNotFoundError:
            raise FilesNotFetched(f"{where}: there is no such revision; name a branch, a tag or a commit.") from None
        except EntryNotFoundError:
            raise FilesNotFetched(f"{where}: there is no such file; correct the source.") from None
        except RepositoryNotFoundError:
            remedy = "correct its name, or give the job the secret HF_TOKEN of an account that may read it."
            raise FilesNotFetched(f"{where}: there is no such repository, or it is private; {remedy}") from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            text = f"{where}: the Hub answers with status {status}"
            if status >= _SERVER or status == _TOO_MANY:
                raise Unanswered(f"{text}.", _wait_s(error.response.headers)) from None
            raise FilesNotFetched(f"{text}; check the source, and the job's secret HF_TOKEN.") from None
        except ValueError as error:  # a name that the Hub takes for none
            raise FilesNotFetched(f"{where}: {error}; correct the source.") from None
        except OfflineModeIsEnabled as error:
            raise FilesNotFetched(f"{where}: {error}; unset HF_HUB_OFFLINE.") from None
        except (OSError, HTTPError) as error:
            raise Unanswered(f"{where}: the Hub does not answer: {error or type(error).__name__}") from None


def _wait_s(headers: Mapping[str, str]) -> float:
    """Seconds that the Hub wants to be left alone: its limits are for five minutes. 0 if it says nothing."""
    used_up, after = _USED_UP.search(headers.get("ratelimit", "")), headers.get("retry-after", "")
    seconds = used_up[1] if used_up else after if after.isdecimal() else "0"
    return min(float(seconds) + 1 if seconds != "0" else 0.0, _MOST_WAIT_S)


def _cached_check(path: Path) -> str:
    """Files of the cache are links to blobs, which are named by their checksum."""
    name = path.resolve().name
    return (_SHA256 if len(name) == 64 else _GIT) + name
