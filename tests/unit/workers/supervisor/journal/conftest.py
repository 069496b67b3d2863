"""The key-value store in memory. What Ray's own does: tests/integration/workers/supervisor/test_journal.py."""

from collections import Counter
from collections.abc import Callable

import pytest

from shardyard.workers.supervisor.journal import kv_store


class Store:
    """Its entries, and how often each function was called. `before(name)` is called first, and may raise."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.calls: Counter[str] = Counter()
        self.before: Callable[[str], None] = lambda _: None

    def _call(self, name: str) -> None:
        self.before(name)
        self.calls[name] += 1

    def put(self, key: str, value: bytes) -> None:
        self._call("put")
        self.entries[key] = value

    def put_new(self, key: str) -> bool:
        self._call("put_new")
        if key in self.entries:
            return False
        self.entries[key] = b""
        return True

    def exists(self, key: str) -> bool:
        self._call("exists")
        return key in self.entries

    def get(self, key: str) -> bytes | None:
        self._call("get")
        return self.entries.get(key)

    def delete(self, key: str) -> None:
        self._call("delete")
        self.entries.pop(key, None)

    def delete_all(self, prefix: str) -> None:
        self._call("delete_all")
        self.entries = {key: value for key, value in self.entries.items() if not key.startswith(prefix)}

    def keys(self, prefix: str) -> list[str]:
        self._call("keys")
        return [key for key in self.entries if key.startswith(prefix)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    for name in ("put", "put_new", "exists", "get", "delete", "delete_all", "keys"):
        monkeypatch.setattr(kv_store, name, getattr(store, name))
    return store
