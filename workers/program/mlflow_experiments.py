"""Experiments of MLflow clients: names, which group the runs of one rank."""

from typing import Final

from .mlflow_fields import Json, MlflowError, invalid, missing, text

#: Maximum number of experiments.
MOST_EXPERIMENTS: Final = 1000


class MlflowExperiments:
    """The experiments of a rank's clients, in bounded memory."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {"0": "Default"}  # by id
        self.asked = "0"
        """The id of the one that a client asked for last."""

    def create(self, body: Json) -> Json:
        """Raises MlflowError."""
        name = text(body, "name")
        if name in self._names.values():
            raise MlflowError("RESOURCE_ALREADY_EXISTS", f"the experiment {name!r} exists: use it, or another name")
        if len(self._names) >= MOST_EXPERIMENTS:
            raise invalid(f"a rank keeps {MOST_EXPERIMENTS:,} experiments, and {name!r} is one more: use fewer")
        number = str(len(self._names))
        self._names[number] = name
        return {"experiment_id": number}

    def get(self, body: Json) -> Json:
        """Raises MlflowError."""
        number = text(body, "experiment_id")
        found = self.found(number)
        self.asked = number
        return {"experiment": found}

    def get_by_name(self, body: Json) -> Json:
        """Raises MlflowError."""
        name = text(body, "experiment_name")
        for number, known in self._names.items():
            if known == name:
                self.asked = number
                return {"experiment": self.found(number)}
        raise missing(f"there is no experiment {name!r}: create it")

    def search(self, body: Json) -> Json:
        """All of them. Raises MlflowError."""
        for name in ("filter", "order_by"):
            if body.get(name):
                raise invalid(
                    f"{name} of experiments is not supported: leave it out, and choose among all that are returned"
                )
        return {"experiments": [self.found(number) for number in self._names]}

    def found(self, number: str) -> Json:
        """An experiment. Raises MlflowError."""
        if number not in self._names:
            raise missing(f"there is no experiment with the id {number!r}: create one")
        return {
            "experiment_id": number,
            "name": self._names[number],
            "artifact_location": f"mlflow-artifacts:/{number}",
            "lifecycle_stage": "active",
        }
