from shardyard.service.policies.retry import INFRASTRUCTURE
from shardyard.service.queries.incidents import HAPPENED, RAY_WORKER, _summary
from shardyard.service.schemas.incident import Repair
from shardyard.workers.messages.event import IncidentEvent
from shardyard.workers.supervisor.policies.ray_workers import CAUSE


def test_a_lost_node_is_one_paragraph_with_its_ranks() -> None:
    lost = IncidentEvent(cause="node_lost", step=17, message="node f8d3ab314835 took ranks 2, 3 along")
    assert _summary(lost, Repair(generation=2, restored=17, step=18, seconds=6.24, spares=[])) == (
        "A node was lost after step 17: node f8d3ab314835 took ranks 2, 3 along. The gang was repaired in place as "
        "generation 2 and trained again 6.2 s later, from step 17, which was in memory."
    )


def test_a_cause_of_the_users_own_is_text() -> None:
    odd = IncidentEvent(cause="my {cause}", rank=1, message="x")
    assert _summary(odd, None) == "Rank 1: my {cause}: x."


def test_a_command_starts_again() -> None:
    lost = IncidentEvent(cause="rank_lost", rank=1, message="the trainer was killed by SIGKILL")
    assert _summary(lost, Repair(generation=2, restored=None, step=0, seconds=0.31, spares=[])).endswith(
        " The gang was repaired in place as generation 2 and started its command again 0.3 s later."
    )


def test_ray_train_starts_its_own_workers_again() -> None:
    failed = IncidentEvent(cause=RAY_WORKER, rank=1, step=3, message="worker 1 of Ray Train: ValueError: once")
    assert _summary(failed, Repair(generation=1, restored=None, step=3, seconds=2.54, spares=[])) == (
        "Rank 1 had a worker of Ray Train that failed after step 3: worker 1 of Ray Train: ValueError: once. "
        "Ray Train started all its workers again 2.5 s later."
    )
    assert RAY_WORKER == CAUSE


def test_what_gangs_report_of_machines_has_a_sentence() -> None:
    found_by_the_service = {
        "gang_lost",
        "cluster_lost",
        "cluster_unreachable",
        "secrets_key_unusable",
        "connection_lost",
    }
    assert HAPPENED.keys() >= INFRASTRUCTURE - found_by_the_service
    failed = IncidentEvent(cause="gang_error", step=3, message="KeyError: 'x'")
    assert _summary(failed, None) == "The gang's supervisor met an error after step 3: KeyError: 'x'."
