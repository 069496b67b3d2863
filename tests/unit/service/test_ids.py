import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardyard.service.ids import Kind, gang_name, job_in, job_of, new_id, new_job_id, parse


def test_ids_sort_by_time_and_never_repeat() -> None:
    times = [0.001 * i for i in range(1_790_000_000_000, 1_790_000_000_200)]
    ids = [new_job_id(now) for now in times]
    assert ids == sorted(ids)
    assert len({new_job_id(times[0]) for _ in range(1000)}) == 1000
    assert all(len(each) == 30 and each == each.lower() for each in ids)


@given(st.integers(0, 10**9))
def test_a_gangs_name_leads_back_to_its_job(attempt: int) -> None:
    job_id = new_job_id(1.7e9)
    assert job_of(gang_name(job_id, attempt)) == (job_id, attempt)


def test_other_names_are_nobodys() -> None:
    for name in ("", "shardyard-", "shardyard-job", "other-job-1", "shardyard-job-x", "shardyard-job-١"):
        assert job_of(name) is None


@pytest.mark.parametrize(
    ("kind", "prefix"), [("job", "job-"), ("fault", "fault-"), ("trace", "trace-"), ("operation", "op-")]
)
def test_a_text_is_an_id_of_one_kind_or_none(kind: Kind, prefix: str) -> None:
    mine = new_id(kind, 1.7e9)
    assert mine.startswith(prefix) and parse(kind, mine) == mine
    kinds: list[Kind] = ["job", "fault", "trace", "operation"]
    assert [other for other in kinds if parse(other, mine)] == [kind]
    for text in (
        "",
        prefix,
        mine[:-1],
        mine + "0",
        mine + "\n",
        " " + mine,
        mine.upper(),
        prefix + "\0" * 26,
        mine[len(prefix) :],
    ):
        assert parse(kind, text) is None, text


def test_a_checkpoints_path_names_its_job() -> None:
    outer, inner = new_job_id(1.7e9), new_job_id(1.8e9)
    assert job_in(f"s3://bucket/{outer}/{inner}/step-00000010") == inner
    assert job_in(f"/x/{outer}0/y") is None
