"""A job whose trainer and supervisor are killed goes on, seen from outside: same attempt, every step once, the same losses, a story."""

from harness.cast import actors, trainers
from harness.plane import Plane, spec, until

STEPS = 150


def test_a_job_that_loses_its_supervisor_and_a_trainer_goes_on_in_place(plane: Plane) -> None:
    job_spec = {"layout": {"data": 4, "zero": 1}, "snapshot": {"every": 1}, "checkpoint": {"final": False}}
    with plane.client() as client:
        whole = client.submit(spec("whole", steps=STEPS, **job_spec))
        assert client.wait(whole.id, timeout_s=180).state == "succeeded"
        broken = client.submit(spec("broken", steps=STEPS, **job_spec))
        until(lambda: (step := client.job(broken.id).progress) is not None and step.step >= 10, 60, "ten steps")
        before = trainers(plane)
        assert len(before) == 4
        (supervisor,) = actors(plane, "Supervisor")
        supervisor.kill()
        before[0].kill()
        done = client.wait(broken.id, timeout_s=180)
        assert (done.state, done.attempt, done.restarts) == ("succeeded", 1, 0), done.message
        states = [event.data["state"] for event in client.events(broken.id) if event.kind == "state"]
        assert states == ["queued", "placing", "starting", "running", "recovering", "running", "succeeded"]
        curves = [[(p.step, p.loss) for p in client.metrics(job.id).points] for job in (whole, broken)]
        assert curves[0] == curves[1] and len(curves[0]) == STEPS
        first, incident = client.incidents(broken.id).items
    assert (first.cause, first.repair) == ("supervisor_lost", None)
    assert incident.cause == "rank_lost" and incident.repair is not None and incident.repair.generation == 2
    assert incident.repair.restored is not None and incident.repair.restored >= (
        incident.step or 0
    )  # no told step is lost
    told = plane.run("incidents", "broken").stdout
    assert "The gang's supervisor was lost after step" in told and "repaired in place as generation 2" in told
