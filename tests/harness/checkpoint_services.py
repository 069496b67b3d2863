"""The services that save and fetch the checkpoints of a program's ranks, with a real store, in one process."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from shardyard.workers.program.checkpoint_service import CheckpointService, answering
from shardyard.workers.program.program import Program
from shardyard.workers.program.rank_meeting import RankMeeting

from .patience import PATIENCE_S


@dataclass
class Gang:
    """The services of all ranks of a generation, and what they emitted. `restarts`: the launcher's count, as programs send it."""

    services: list[CheckpointService]
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    restarts: int = 0

    def on_all(self, do: Callable[[CheckpointService, int], Any]) -> list[Any]:
        with ThreadPoolExecutor(len(self.services)) as pool:
            begun = [pool.submit(do, service, rank) for rank, service in enumerate(self.services)]
            return [one.result(PATIENCE_S) for one in begun]

    def save(self, step: int, text: str, rank: int | None = 0) -> list[dict[str, Any]]:
        """Rank `rank` saves a file with this text; None: every rank, with its number behind the text."""
        if rank is not None:
            return [save(self.services[rank], step, text)]
        return self.on_all(lambda service, own: self.save_part(service, step, f"{text} {own}"))

    def save_part(self, service: CheckpointService, step: int, text: str) -> dict[str, Any]:
        return save(service, step, text, every=True, restarts=self.restarts)

    def resume(self) -> list[tuple[int | None, str | None]]:
        """Step and text on each rank."""
        request = {"resume": {"rank": None}, "restarts": self.restarts}
        return [content(one) for one in self.on_all(lambda service, _: service.answer(request, []))]

    def kinds(self) -> list[tuple[str, int | None]]:
        return [(kind, data.get("step")) for kind, data in self.events]


def save(service: CheckpointService, step: int, text: str, *, every: bool = False, restarts: int = 0) -> dict[str, Any]:
    path = Path(service._program.cache) / f"w-{threading.get_ident()}" / "weights"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    asked = {"step": step, "every": every, "kind": "files", "path": str(path)}
    return service.answer({"save": asked, "restarts": restarts}, [])


def content(found: dict[str, Any]) -> tuple[int | None, str | None]:
    assert "error" not in found, found
    return found["step"], None if found["step"] is None else Path(found["path"], "weights").read_text()


@contextmanager
def gang(tmp_path: Path, world: int = 2, **changes: Any) -> Iterator[Gang]:
    """A new generation, whose ranks share a node."""
    store = TCPStore("127.0.0.1", 0, None, is_master=True)
    options = {"checkpoints": str(tmp_path / "storage/job"), "cache": str(tmp_path / "cache")} | changes
    program, made = Program("job", ("true",), **options), Gang([])
    with ExitStack() as stack:
        for rank in range(world):
            own = TCPStore("127.0.0.1", store.port, None, is_master=False)
            meeting = RankMeeting(own, rank, world, lambda: False)
            emit = lambda kind, data: made.events.append((kind, data))  # noqa: E731
            made.services.append(stack.enter_context(answering(program, meeting, emit)))
        yield made
