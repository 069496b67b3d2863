"""Parameters and tags of MLflow clients: lines of the rank's log, and kept for clients that read them back, in bounded memory."""

from collections.abc import Callable, Mapping
from typing import Final

from .mlflow_fields import shown

#: Characters of all parameters and tags that are kept. Further ones are in the log only.
MOST_TEXT: Final = 16 << 20


class MlflowTexts:
    """The parameters and tags of all runs and logged models of a rank."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        """`write_line`: writes a line to the rank's log."""
        self.write_line = write_line
        self._kept = 0

    def log(self, kind: str, prefix: str, found: Mapping[str, str]) -> None:
        """Write a line for each, but for those that clients add by themselves. `prefix`: what the names in the log begin with."""
        for key, value in found.items():
            if not key.startswith("mlflow."):
                self.write_line(f"MLflow {kind} {shown(prefix + key)} = {shown(value)}")

    def keep(self, kept: dict[str, str], found: Mapping[str, str]) -> None:
        """Add to what a run or model has, as far as there is room."""
        for key, value in found.items():
            size = len(value) - len(kept[key]) if key in kept else len(key) + len(value)
            if self._kept + size <= MOST_TEXT:
                kept[key] = value
                self._kept += size

    def drop(self, kept: dict[str, str], key: str) -> bool:
        """Remove one of them. Whether it was there."""
        if key not in kept:
            return False
        self._kept -= len(key) + len(kept.pop(key))
        return True

    def forget(self, *gone: Mapping[str, str]) -> None:
        """Count no longer what a forgotten run had."""
        self._kept -= sum(len(key) + len(value) for kept in gone for key, value in kept.items())
