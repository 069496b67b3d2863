"""The supervisor actor, one per attempt: it places the ranks, pulls their events, diagnoses hangs, repairs."""
