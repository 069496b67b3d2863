"""A reader that comes back reads on from its cursor."""

from shardyard.service.jobs import submit as submitting
from shardyard.service.queries import live_tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.store.engine import Store

from ..conftest import Submit
from .test_jobs import _fill_steps


async def test_a_reader_that_comes_back_misses_nothing(store: Store, submit: Submit) -> None:
    job = await submit()
    await _fill_steps(store, job.id, dict.fromkeys(range(1, 21), 1.0))
    seen, cursor = [], Cursor()
    while True:
        tail = await live_tail.tail(store, job.id, cursor, limit=3)
        if not tail.items:
            break
        seen += [(item.kind, item.data.get("step")) for item in tail.items]
        cursor = Cursor.parse(str(tail.items[-1].cursor))
        assert cursor == tail.cursor
    assert [step for kind, step in seen if kind == "step"] == list(range(1, 21))
    assert [kind for kind, _ in seen].count("state") == 1
    assert not tail.done
    await submitting.cancel(store, job.id, "tester")
    tail = await live_tail.tail(store, job.id, cursor)
    assert ([item.data["state"] for item in tail.items], tail.done) == (["cancelled"], True)
