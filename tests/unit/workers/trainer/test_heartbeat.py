from shardyard.workers.trainer.heartbeat import Heartbeat


def test_a_status_says_where_the_training_thread_is() -> None:
    heartbeat = Heartbeat()
    heartbeat.beat("step", 7)
    status = heartbeat.status()
    assert (status["phase"], status["step"]) == ("step", 7) and status["idle_s"] >= 0
    assert status["collectives"] == [] and isinstance(status["stacks"], list)
    before = heartbeat.at
    heartbeat.beat("step", 8)
    assert heartbeat.at >= before and heartbeat.step == 8
