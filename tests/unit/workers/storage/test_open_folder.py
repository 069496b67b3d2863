"""Folders of one bucket share a client."""

from shardyard.workers.storage.open_folder import folder_at, shared_folder_at


def test_folders_of_a_bucket_share_its_client(prefix: str) -> None:
    first, second = shared_folder_at(prefix), shared_folder_at(f"{prefix}/a/b")
    assert (first.where, second.where) == (prefix, f"{prefix}/a/b")
    assert first._bucket is second._bucket  # type: ignore[attr-defined]
    folder_at(f"{prefix}/a/b").write("c", memoryview(b"content"))
    assert second.files() == {"c": 7} and (first / "a" / "b").has("c")
