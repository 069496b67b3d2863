"""Names of logged files are paths that lead nowhere else; types of content come from the content."""

import pytest

from shardyard.workers.messages.artifact import check_name, check_step, media_type


@pytest.mark.parametrize("name", ["a", "model/weights.pt", "ä b/ü.png", "..a", "a" * 255, ".hidden"])
def test_a_relative_path_is_a_name(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a:b", "a\nb", "a\0b", " a", "a" * 256, "a/" * 200 + "a", "ä" * 128, None],
)  # fmt: skip
def test_what_leads_elsewhere_is_no_name(name: object) -> None:
    with pytest.raises(ValueError, match=r"name|path|part|has one of"):
        check_name(name)


@pytest.mark.parametrize("step", [-1, 2**53, True, 1.0, "1"])
def test_what_is_no_step_is_refused(step: object) -> None:
    check_step(None)
    check_step(0)
    with pytest.raises(ValueError, match="whole number"):
        check_step(step)


@pytest.mark.parametrize(
    ("kind", "head", "found"),
    [
        ("file", b"\x89PNG\r\n\x1a\n", "image/png"),
        ("file", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("image", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ("image", b"<svg xmlns=", "application/octet-stream"),
        ("file", b"<html>", "application/octet-stream"),
        ("table", b"a,b\r\n", "text/csv"),
        ("file", b"", "application/octet-stream"),
    ],
)
def test_the_type_of_content_is_that_of_its_first_bytes(kind: str, head: bytes, found: str) -> None:
    assert media_type(kind, head) == found  # type: ignore[arg-type]
