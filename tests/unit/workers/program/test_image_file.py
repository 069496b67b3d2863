"""Images of programs become PNG files, which another library reads as what they were."""

import io
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

from shardyard.workers.program.image_file import content


def read(image: Any) -> Any:
    found = content(image)
    assert isinstance(found, bytes)
    return numpy.asarray(Image.open(io.BytesIO(found)))


PIXELS = numpy.arange(2 * 3 * 3, dtype="uint8").reshape(2, 3, 3) * 14


def test_arrays_tensors_and_images_are_read_as_what_they_were() -> None:
    assert (read(PIXELS) == PIXELS).all()
    assert (read(PIXELS[..., 0]) == PIXELS[..., 0]).all() and (read(PIXELS[..., :1]) == PIXELS[..., 0]).all()
    assert (read(PIXELS / numpy.float64(255)) == PIXELS).all()
    channels_first = torch.from_numpy(PIXELS.copy()).permute(2, 0, 1)
    assert (read(channels_first) == PIXELS).all() and (
        read(channels_first.half().requires_grad_() / 255) == PIXELS
    ).all()
    with_alpha = numpy.concatenate([PIXELS, PIXELS[..., :1]], axis=2)
    assert (read(with_alpha) == with_alpha).all() and (read(Image.fromarray(PIXELS)) == PIXELS).all()


def test_floats_outside_of_0_to_1_are_cut() -> None:
    assert read(numpy.array([[-1.0, 0.5, 7.0, numpy.nan]])).tolist() == [[0, 128, 255, 0]]
    assert read(torch.tensor([[-1.0, 0.5, 7.0, torch.nan]])).tolist() == [[0, 128, 255, 0]]


def test_files_that_browsers_show_are_taken_as_they_are(tmp_path: Path) -> None:
    for kind in ("PNG", "JPEG", "WEBP"):
        room = io.BytesIO()
        Image.fromarray(PIXELS).save(room, kind)
        path = tmp_path / kind
        path.write_bytes(room.getvalue())
        assert content(room.getvalue()) == room.getvalue() and content(path) == path


@pytest.mark.parametrize(
    "image",
    [b"<svg/>", b"", numpy.zeros((2, 2, 2)), numpy.zeros(4), numpy.zeros((0, 3)), numpy.zeros((2, 2), "int64"), 7, None,
     torch.zeros(2, 2, dtype=torch.int32), numpy.broadcast_to(numpy.uint8(0), (1 << 14, 1 << 13))],
)  # fmt: skip
def test_what_is_no_image_is_refused(image: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="image"):
        content(image)
