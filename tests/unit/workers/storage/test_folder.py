"""A folder that a dead process was filling can be filled again."""

import contextlib
from pathlib import Path

from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder

LAST = "config.json"


def fill(out: Folder) -> None:
    with out.filled(last=LAST) as partial:
        for name in ("weights", LAST):
            (partial / name).write_text("{}")


def test_what_a_dead_writer_left_is_discarded_and_nothing_else(root: Folder) -> None:
    out, other = root / "out", root / "output"
    fill(out)
    fill(other)
    for _ in range(2):
        out.discard_partial(LAST)
        assert (sorted(out.files()), sorted(other.files())) == ([LAST, "weights"], [LAST, "weights"])
    if isinstance(root, LocalFolder):  # its writers fill another folder, which they rename
        left = [Path(root.where) / name for name in (".out.7.partial", ".output.7.partial")]
        for folder in left:
            folder.mkdir()
        out.discard_partial(LAST)
        assert [folder.exists() for folder in left] == [False, True]
    else:  # of a bucket's, the last file is missing
        out.remove(LAST)
        with contextlib.suppress(FileExistsError):
            fill(out)
            raise AssertionError("it was filled a second time")
        out.discard_partial(LAST)
        assert out.files() == {}
        fill(out)
