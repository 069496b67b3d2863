"""Prints the text that a job was submitted with: only the text goes to stdout, so that it can be stored and submitted again."""

from ....service.schemas.submitted_spec import SubmittedSpec
from ...errors import InvalidParameter
from ..terminal.screen import Screen


def show(screen: Screen, found: SubmittedSpec, *, json: bool) -> None:
    """Raises InvalidParameter if no text was kept."""
    if json:
        screen.json(found)
        return
    if found.text is None:
        remedy = f"See its resolved spec with: shardyard show {found.job} --json"
        raise InvalidParameter(f"No text was kept of the spec of {found.job}.", field="--submitted", remedy=remedy)
    screen.text(found.text)
