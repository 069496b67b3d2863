"""A server that speaks the few routes of the Hugging Face Hub by which files are listed and read, and counts its requests."""

import contextlib
import hashlib
import json
import os
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest import mock

from huggingface_hub import constants

from .patience import PATIENCE_S


@dataclass
class Repository:
    """Revisions of one repository: commit → name → content. `refs`: branch → commit. `token`: without it there is no answer."""

    commits: dict[str, dict[str, bytes]]
    refs: dict[str, str]
    token: str | None = None
    large: frozenset[str] = frozenset()  # names of files that are stored by their SHA-256


@dataclass
class Hub:
    """The server's state. `asked`: requests by their first words, such as `resolve weights.bin`."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    failing: int = 0  # number of requests that get status 503
    limits: dict[str, str] = field(default_factory=dict)  # headers of an answer with status 429, which all requests get
    page: int = 1000  # entries in an answer to a listing
    ranges: bool = True  # whether a part of a file is sent where one is asked for
    gates: dict[str, threading.Event] = field(default_factory=dict)  # a file, `tree` or `paths-info` → sent after this
    held: threading.Event = field(default_factory=threading.Event)  # a request waits at a gate

    def entry(self, repository: Repository, commit: str, name: str) -> dict[str, Any]:
        content = repository.commits[commit][name]
        git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        found: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": git}
        if name in repository.large:
            found["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 100}
        return found


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def log_message(self, *_: object) -> None:
        """Nothing is written."""

    def _answer(self, body: bytes) -> None:
        hub = self.hub
        asked = self.requestline.split()[1]  # `self.path` has one slash where the request has two
        path = urllib.parse.unquote(asked.partition("?")[0]).removeprefix("/").rstrip("/")
        if hub.failing:
            hub.failing -= 1
            self._send(503, b"later")
            return
        if hub.limits:
            self._send(429, b"too many", hub.limits)
            return
        is_api = path.startswith("api/")
        path = path.removeprefix("api/").removeprefix("models/")
        name = next((name for name in hub.repositories if path == name or path.startswith(f"{name}/")), None)
        repository = None if name is None else hub.repositories[name]
        if name is None or repository is None or not self._is_allowed(repository):
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
            return
        what, _, rest = path.removeprefix(name).strip("/").partition("/")
        revision, _, file = rest.partition("/")
        commit = repository.refs.get(revision or "main", revision)
        hub.asked[f"{what or 'revision'} {file}".strip()] += 1
        self._wait_at_gate(what)
        if commit not in repository.commits:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif not is_api:
            self._send_file(repository, commit, file)
        elif what in ("", "revision"):
            self._send_json({"id": name.removeprefix("datasets/"), "sha": commit, "private": False})
        elif what == "tree":
            names = [one for one in repository.commits[commit] if one.startswith(f"{file}/") or not file]
            self._send_page([hub.entry(repository, commit, one) for one in sorted(names)])
        else:
            wanted = urllib.parse.parse_qs(body.decode())["paths"]
            self._send_json([found for one in wanted for found in self._path_info(repository, commit, one)])

    def _path_info(self, repository: Repository, commit: str, path: str) -> list[dict[str, Any]]:
        if path in repository.commits[commit]:
            return [self.hub.entry(repository, commit, path)]
        is_folder = any(name.startswith(f"{path}/") for name in repository.commits[commit])
        return [{"type": "directory", "path": path, "oid": "0" * 40}] if is_folder else []

    def _is_allowed(self, repository: Repository) -> bool:
        return repository.token is None or self.headers.get("Authorization") == f"Bearer {repository.token}"

    def _send_file(self, repository: Repository, commit: str, file: str) -> None:
        content = repository.commits[commit].get(file)
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        self._wait_at_gate(file)
        if not self.hub.ranges:
            self._send(200, content)
            return
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1]
        self._send(206, part, {"Content-Range": f"bytes {first}-{last}/{len(content)}"})

    def _wait_at_gate(self, name: str) -> None:
        if (gate := self.hub.gates.get(name)) is not None:
            self.hub.held.set()
            gate.wait(PATIENCE_S)

    def _send_page(self, entries: list[dict[str, Any]]) -> None:
        address = urllib.parse.urlsplit(self.path)
        asked = urllib.parse.parse_qs(address.query)
        first = int(asked.pop("cursor", ["0"])[0])
        end = first + self.hub.page
        query = urllib.parse.urlencode({**asked, "cursor": end}, doseq=True)
        more = {"Link": f'<{self.hub.url}{address.path}?{query}>; rel="next"'} if end < len(entries) else None
        self._send_json(entries[first:end], more)

    def _send_json(self, value: Any, headers: dict[str, str] | None = None) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        with contextlib.suppress(ConnectionError):  # the client was killed
            self.end_headers()
            self.wfile.write(content)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub on loopback, without repositories. This process and those that it starts may ask it, whatever other tests have set."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answer", (_Answer,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        with mock.patch.dict(os.environ, HF_HUB_OFFLINE="0"), mock.patch.object(constants, "HF_HUB_OFFLINE", False):
            yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
