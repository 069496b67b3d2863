"""A trace as a Perfetto file, generated while it is sent: one rank at a time is in memory, and no transaction stays open."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

from sqlalchemy.engine import RowMapping

from ...workers.chrome_trace import process
from ..store import traces as rows
from ..store.engine import Store
from ..store.packing.trace_spans import event_of
from .traces import find_trace

_GZIP: Final = 16 + zlib.MAX_WBITS
_LEVEL: Final = 6


async def document(store: Store, job: str, trace: str) -> AsyncIterator[bytes]:
    """Chunks of gzipped Chrome trace events. Raises JobNotFound, TraceNotFound before the first chunk."""
    async with store.read() as tx:
        found, _ = await find_trace(tx, job, trace)
        heads = await rows.heads(tx, found.job, found.id)
    zero = min((part["began"] for part in heads), default=0.0)
    return _chunks(store, found.job, found.id, sorted({part["rank"] for part in heads}), zero)


async def _chunks(store: Store, job: str, trace: str, ranks: Sequence[int], zero: float) -> AsyncIterator[bytes]:
    pack = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    other = {"began_unix_s": zero, "job": job, "trace": trace}
    yield pack.compress(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(other)},"traceEvents":['.encode())
    for rank in ranks:
        async with store.read() as tx:
            parts = await rows.of_rank(tx, job, trace, rank)
        yield await asyncio.to_thread(_packed, pack, parts, rank, zero, "" if rank == ranks[0] else ",")
    yield pack.compress(b"]}") + pack.flush()


def _packed(pack: "zlib._Compress", parts: Sequence[RowMapping], rank: int, zero: float, before: str) -> bytes:
    slices = process(rank, [event_of(part) for part in parts], zero)
    return pack.compress((before + json.dumps(slices, separators=(",", ":"))[1:-1]).encode())
