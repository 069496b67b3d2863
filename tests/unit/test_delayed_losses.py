"""The picture of losses: every curve is inside its frame, and every name can be read."""

import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import delayed_losses

SVG = "{http://www.w3.org/2000/svg}"


def test_every_curve_is_drawn_with_its_name_apart_from_the_others() -> None:
    curves = {name: [(10, 4.0 + at), (20, 3.3), (30, 2.51 + at / 100)] for at, name in enumerate(delayed_losses.RUNS)}
    picture = ElementTree.fromstring(delayed_losses.drawn(curves, "A title"))
    lines = [line.attrib["points"].split() for line in picture.iter(f"{SVG}polyline")]
    points = [tuple(map(float, point.split(","))) for line in lines for point in line]
    assert [len(line) for line in lines] == [3] * len(curves)
    assert all(50 <= x <= 570 and 40 <= y <= 380 for x, y in points)
    texts = {text.text: float(text.attrib["y"]) for text in picture.iter(f"{SVG}text")}
    assert all(after - before > 17.8 for before, after in pairwise(sorted(texts[name] for name in curves)))
    assert {"2.5", "7.0", "0", "7"} <= texts.keys()


def test_lower_losses_are_lower_in_the_picture() -> None:
    picture = ElementTree.fromstring(delayed_losses.drawn({"1f1b": [(1, 4.0), (2, 2.0)]}, "losses"))
    (line,) = picture.iter(f"{SVG}polyline")
    first, last = (float(point.partition(",")[2]) for point in line.attrib["points"].split())
    assert last > first


def test_a_schedule_has_a_row_and_a_rate_its_columns() -> None:
    curves = {(rate, name): [(1, rate), (2, 2 * rate)] for rate in (0.5, 0.25) for name in ("1f1b", "2bw")}
    assert delayed_losses.table(curves, [1, 2]).splitlines() == [
        "| schedule | 0.5: step 1 | 0.5: step 2 | 0.25: step 1 | 0.25: step 2 |",
        "| --- | --- | --- | --- | --- |",
        "| 1f1b | 0.500 | 1.000 | 0.250 | 0.500 |",
        "| 2bw | 0.500 | 1.000 | 0.250 | 0.500 |",
    ]
