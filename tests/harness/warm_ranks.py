"""Imported by the server of which `ranks` forks: what each rank would make again."""

from shardyard.workers.messages.rank_event import prepare

prepare()
