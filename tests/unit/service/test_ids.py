from hypothesis import given
from hypothesis import strategies as st

from shardyard.service.ids import gang_name, job_of, new_job_id


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
