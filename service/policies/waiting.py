"""A queued job as the queue's policy sees it, and why it waits."""

from dataclasses import dataclass, replace
from typing import Literal, Self, cast

from ...workers.messages.gang_spec import ANY_MODELS

Device = Literal["cpu", "cuda"]
DeviceChoice = Literal["auto", "cpu", "cuda"]
Within = Literal["zone", "domain"]


@dataclass(frozen=True)
class Waiting:
    """A queued job: `world_size` ranks, of which each `tensor` neighbours must be placed on one node, and spares on any node.

    `gpu`: the model that all its GPUs must have; empty: any one model. `within`: the label that all its nodes must share. `image`: of its
    nodes; empty: the cluster's own, None: any.
    """

    id: str
    world_size: int
    tensor: int
    wanted: DeviceChoice
    spares: int = 0
    others: tuple[int, ...] = ()  # other sizes that an elastic job takes now if there is no room for the first
    least: int | None = None  # the smallest world size that an elastic job may ever take
    gpu: str = ""
    within: Within | None = None
    cpus: float = 0.0  # cores that it reserves beside each GPU
    image: str | None = ""

    @property
    def shape(self) -> str:
        """Identifies the job's queue, as text. For an elastic job its smallest layout does."""
        asks = self.gpu or self.within or self.cpus or self.image
        more = f" {self.gpu or '-'} {self.within or '-'} {self.cpus:g}" if asks else ""
        more += f" {self.image}" if self.image else ""
        return f"{self.wanted} {self.smallest.world_size} {self.tensor} {self.spares}{more}"

    @classmethod
    def of(cls, shape: str) -> Self:
        """A job of this shape, without an id."""
        wanted, world_size, tensor, spares, *more = shape.split()
        gpu, within, cpus, *image = more or ("-", "-", "0")
        job = cls(
            "",
            int(world_size),
            int(tensor),
            cast("DeviceChoice", wanted),
            int(spares),
            cpus=float(cpus),
            image="".join(image),
        )
        together = None if within == "-" else cast("Within", within)
        return replace(job, gpu="" if gpu == "-" else gpu, within=together)

    @property
    def devices(self) -> int:
        return self.world_size + self.spares

    @property
    def sizes(self) -> "list[Waiting]":
        """The job in every size that it takes now, the preferred size first."""
        return [replace(self, world_size=size) for size in (self.world_size, *self.others)]

    @property
    def smallest(self) -> "Waiting":
        return self if self.least is None else replace(self, world_size=self.least)

    @property
    def model(self) -> str:
        """The one model that it names; empty: it names none."""
        return "" if self.gpu == ANY_MODELS else self.gpu

    def __str__(self) -> str:
        spares = f" and {self.spares} spare{'s' * (self.spares > 1)}" if self.spares else ""
        return f"{self.world_size} ranks{spares}"


@dataclass(frozen=True)
class Wait:
    id: str
    reason: str
    message: str
