"""Parameter servers as a part of the layout: how many, and how far workers may be ahead of each other. Imports no torch."""

from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

#: The most steps by which a worker is ever ahead of another one. The records of steps that not all workers have finished are kept.
MOST_AHEAD: Final = 1000


class ParameterServer(BaseModel):
    """Ranks that hold the values and the optimizer's state for `data` workers, which compute (Li et al., OSDI 2014). CPUs only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: int = Field(
        ge=1, le=1024, description="Number of servers, ranks beside the workers; parameters are distributed by bytes."
    )
    mode: Literal["sync", "stale", "async"] = Field(
        "sync",
        description="`sync`: each step equals data parallelism. `stale`: each worker has a clock of its own, its gradients are applied "
        "when they arrive, and it is at most `bound` steps ahead of the slowest one (SSP). `async`: the same with a bound of "
        f"{MOST_AHEAD:,} steps. Both change the optimisation.",
    )
    bound: int | None = Field(
        None,
        ge=0,
        le=MOST_AHEAD,
        description="With mode `stale`: the number of steps by which a worker may be ahead of the slowest one; 0: all take each step "
        "from the same values.",
    )

    @model_validator(mode="after")
    def _bound_where_stale(self) -> Self:
        if self.mode == "stale" and self.bound is None:
            raise ValueError("mode stale needs a bound, such as bound: 2; without one use mode: async")
        if self.mode != "stale" and self.bound is not None:
            raise ValueError(f"mode {self.mode} has no bound: leave bound out, or set mode to stale")
        return self

    @property
    def ahead(self) -> int | None:
        """The most steps by which a worker is ahead of the slowest one; None: no worker has a clock of its own."""
        return {"sync": None, "stale": self.bound, "async": MOST_AHEAD}[self.mode]
