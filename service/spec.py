"""The job spec: what a user submits. The training itself (`train`) is the workers' `TrainSpec`. Imports no torch and no Ray."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ..workers.spec import TrainSpec

Label = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$")
]
#: Neither control characters nor line breaks, nor signs that change the direction of text: it is shown in lines beside other text.
PLAIN_TEXT = r"^[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
LabelValue = Annotated[str, StringConstraints(max_length=255, pattern=PLAIN_TEXT)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]


def _keys_by_pattern(schema: dict[str, Any]) -> None:
    """A mapping's schema as the server holds it: other keys are refused. (pydantic's `patternProperties` lets them through.)"""
    [(pattern, value)] = schema.pop("patternProperties").items()
    schema["propertyNames"] = {**schema.get("propertyNames", {}), "pattern": pattern}
    schema["additionalProperties"] = value


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Resources(_Part):
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="`auto`: GPUs where the cluster has them.")


class StragglerPolicy(_Part):
    """When a rank whose own work takes longer than its peers' is told as an incident. Nothing is repaired for it."""

    factor: float = Field(
        1.5,
        gt=1,
        le=100,
        description="Its own time over that of ranks with an equal share of the work, or over its past's.",
    )
    steps: int = Field(20, ge=5, le=10_000, description="In nearly all of so many steps, and …")
    seconds: float = Field(30.0, ge=0, le=86_400, description="… for at least so long.")


class LossSpikePolicy(_Part):
    """When a step's loss is told as an incident because it leaps above those before it. Training goes on."""

    window: int = Field(
        100, ge=32, le=10_000, description="Steps before it whose losses it is held against, 32 at least."
    )
    deviations: float = Field(
        10.0,
        gt=0,
        le=1000,
        description="It exceeds their median by so many standard deviations (estimated by the median absolute one), and by 5%.",
    )


class Policy(_Part):
    max_restarts: int = Field(
        3,
        ge=0,
        le=1000,
        description="New attempts after faults of machines that no repair in place could mend; faults of the whole cluster cost none.",
    )
    max_retries: int = Field(
        0,
        ge=0,
        le=1000,
        description="New attempts after exceptions of the training code; the same one at the same step again fails the job at once.",
    )
    max_repairs: int = Field(
        20,
        ge=0,
        le=100_000,
        description="Repairs in place of each attempt that lost a rank: all others stay, and training goes on from memory.",
    )
    hang_s: float | None = Field(
        30.0,
        ge=1,
        le=86_400,
        description="Seconds without progress, or five median steps if that is longer, after which a gang that lives counts as "
        "hung: every rank is examined, the culprit named, and the gang repaired. null: never.",
    )
    # A factory, so that the schema shows no object as the default of what may be null: generators of clients drop such a field's parents.
    straggler: StragglerPolicy | None = Field(
        default_factory=StragglerPolicy,
        description="When a rank that slows the gang is named in an incident. null: never.",
    )
    loss_spike: LossSpikePolicy | None = Field(
        default_factory=LossSpikePolicy, description="When a leap of the loss is reported as an incident. null: never."
    )
    spares: int = Field(
        0,
        ge=0,
        le=1000,
        description="Warm spares: further rank actors, each on a device that trains nothing, of which one takes over the rank of an "
        "actor that dies, so that the repair need not wait for a new process.",
    )
    elastic_grace_s: float = Field(
        60.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        description="Of a job whose layout.data is a range: seconds without the devices that it lacks before it goes on with fewer "
        "replicas, and with free devices before it takes more.",
    )


class JobSpec(_Part):
    """A training job, as YAML or JSON."""

    name: Name = Field(description="Lower-case letters, digits and dashes.")
    train: TrainSpec
    resources: Resources = Resources()
    policy: Policy = Policy()
    labels: dict[Label, LabelValue] = Field(default_factory=dict, max_length=64, json_schema_extra=_keys_by_pattern)

    @property
    def device(self) -> Literal["auto", "cpu", "cuda"]:
        """What the queue looks for: fp8 runs on GPUs alone."""
        return (
            "cuda"
            if self.resources.device == "auto" and self.train.precision.compute == "fp8"
            else self.resources.device
        )
