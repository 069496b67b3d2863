from pytest import MonkeyPatch

from shardyard.service.cluster import ray_gangs


def test_gangs_are_named_by_their_actors_and_by_the_groups_that_live(monkeypatch: MonkeyPatch) -> None:
    """A gang whose supervisor is gone still has its group. Ray's public table has a row of each gang since its head began."""
    import ray.util

    actors = [("shardyard", "shardyard-a-1"), ("shardyard", "shardyard-b-1-rank-3"), ("theirs", "shardyard-c-1")]
    named = [{"namespace": namespace, "name": name} for namespace, name in actors]
    groups = [{"name": name} for name in ("shardyard-b-1", "shardyard-d-2", "another-users", "")]
    monkeypatch.setattr(ray.util, "list_named_actors", lambda all_namespaces: named)
    monkeypatch.setattr(ray_gangs, "living_groups", lambda: groups)
    assert ray_gangs._gang_names_inside() == ["shardyard-a-1", "shardyard-b-1", "shardyard-d-2"]
