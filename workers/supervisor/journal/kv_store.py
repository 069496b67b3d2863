"""The Ray cluster's key-value store, as the supervisor uses it. Ray has no public name for it.

It is in the control service (GCS): it outlives every worker, and every node but the head's. Each call blocks. It raises RayError
when the control service does not answer, and RuntimeError on a version of Ray that was not tried.
"""

from typing import Any, Final

from ..ranks.placement_group import NAMESPACE

TRIED: Final = ("2.60.",)


def put(key: str, value: bytes) -> None:
    _store()._internal_kv_put(key, value, namespace=NAMESPACE)


def put_new(key: str) -> bool:
    """Make an empty entry. False when there is an entry of this key already."""
    return not _store()._internal_kv_put(key, b"", overwrite=False, namespace=NAMESPACE)


def exists(key: str) -> bool:
    return bool(_store()._internal_kv_exists(key, namespace=NAMESPACE))


def get(key: str) -> bytes | None:
    value: bytes | None = _store()._internal_kv_get(key, namespace=NAMESPACE)
    return value


def delete(key: str) -> None:
    _store()._internal_kv_del(key, namespace=NAMESPACE)


def delete_all(prefix: str) -> None:
    """Delete every key that begins with `prefix`."""
    _store()._internal_kv_del(prefix, del_by_prefix=True, namespace=NAMESPACE)


def keys(prefix: str) -> list[str]:
    """Those that begin with `prefix`. Ray looks at all keys of the cluster for it."""
    return [bytes(key).decode() for key in _store()._internal_kv_list(prefix, namespace=NAMESPACE)]


def _store() -> Any:
    """Ray's private module."""
    import ray
    from ray.experimental import internal_kv

    if not ray.__version__.startswith(TRIED):
        raise RuntimeError(
            f"ray.experimental.internal_kv was tried on Ray {TRIED[0]}x only; Ray {ray.__version__} is installed."
        )
    return internal_kv
