"""What a program needs without a job: runs of the same files in the same folder share their links, and the last one removes them."""

from pathlib import Path

import pytest

from shardyard.workers.program.files.errors import FilesNotFetched
from shardyard.workers.program.local_preparation import locally_prepared
from shardyard.workers.program.program import FilesCache, Mount, Program


def wants(tmp_path: Path, **sources: Path) -> Program:
    mounts = tuple(Mount(target, str(source)) for target, source in sources.items())
    return Program("here", ("true",), mounts=mounts, files=FilesCache(str(tmp_path / "record"), 1 << 20))


def test_links_stay_until_the_last_run_ends(tmp_path: Path) -> None:
    source, code, cache = tmp_path / "source", tmp_path / "code", tmp_path / "cache"
    source.mkdir()
    (source / "a").write_text("there")
    code.mkdir()
    program = wants(tmp_path, data=source)
    with locally_prepared(program, code, cache) as first:
        with locally_prepared(program, code, cache) as second:
            assert second == first and first.environment is None and first.own == ()
        assert (code / "data" / "a").read_text() == "there"
        assert Path(first.variables["SHARDYARD_FILES"], "data", "a").read_text() == "there"
    assert not list(code.iterdir())
    with locally_prepared(program, None, cache) as without_code:
        assert Path(without_code.variables["SHARDYARD_FILES"], "data", "a").exists() and not list(code.iterdir())


def test_nothing_is_prepared_for_a_program_that_needs_nothing(tmp_path: Path) -> None:
    with locally_prepared(Program("here", ("true",)), tmp_path, tmp_path / "cache") as place:
        assert place.variables == {} and place.environment is None
    assert not list(tmp_path.iterdir())


def test_a_source_that_is_missing_leaves_no_link(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    with (
        pytest.raises(FilesNotFetched, match="none is not on this node"),
        locally_prepared(wants(tmp_path, data=tmp_path, more=tmp_path / "none"), code, tmp_path / "cache"),
    ):
        pass
    assert not list(code.iterdir())
