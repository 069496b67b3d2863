from shardyard.workers.messages.gang_spec import GangSpec, LossSpikeLimits
from shardyard.workers.supervisor.policies.loss_spike import ENOUGH, LossSpikeState
from shardyard.workers.supervisor.policies.straggler import StragglersState
from shardyard.workers.supervisor.step_watch import StepWatch


def test_a_spike_is_one_incident_and_a_successor_knows_of_it() -> None:
    spec = GangSpec("shardyard-a-1", {}, 1, loss_spike=LossSpikeLimits())
    watch = StepWatch(spec, StragglersState(), LossSpikeState([2.0] * ENOUGH))
    causes = [watch.incidents({0: {"step": step, "loss": 9.0}}, ["node-a"]) for step in (1, 2)]
    assert [[failure.cause for failure in found] for found in causes] == [["loss_spike"], []]
    successor = StepWatch(spec, watch.stragglers.to_state(), watch.spikes.to_state())
    assert successor.incidents({0: {"step": 3, "loss": 9.0}}, ["node-a"]) == []
