"""The Ray cluster's key-value store, as the supervisor uses it. Ray has no public name for it.

It is in the control service (GCS): it outlives every worker, and every node but the head's. Each call blocks, and raises RayError
when the control service does not answer.
"""

from ..ranks.placement_group import NAMESPACE


def put(key: str, value: bytes) -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(key, value, namespace=NAMESPACE)


def put_new(key: str) -> bool:
    """Make an empty entry. False when there is an entry of this key already."""
    from ray.experimental import internal_kv

    return not internal_kv._internal_kv_put(key, b"", overwrite=False, namespace=NAMESPACE)


def get(key: str) -> bytes | None:
    from ray.experimental import internal_kv

    value: bytes | None = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
    return value


def delete(key: str) -> None:
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(key, namespace=NAMESPACE)


def delete_all(prefix: str) -> None:
    """Delete every key that begins with `prefix`."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(prefix, del_by_prefix=True, namespace=NAMESPACE)


def keys(prefix: str) -> list[str]:
    from ray.experimental import internal_kv

    return [bytes(key).decode() for key in internal_kv._internal_kv_list(prefix, namespace=NAMESPACE)]
