"""What older versions wrote stays as they wrote it."""

import hashlib
import json

from harness.house import ROOT

DATA = ROOT / "tests" / "data"


def test_files_of_versions_are_never_changed() -> None:
    """Journals and events of all versions, byte for byte. A new version adds its files, and their digests."""
    paths = [*(DATA / "events").glob("v*.jsonl"), *(DATA / "journal").glob("v*/*"), DATA / "journal" / "pickled"]
    found = {str(path.relative_to(DATA)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    assert found == json.loads((DATA / "written.json").read_text())
