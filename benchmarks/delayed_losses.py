"""Validation losses of schedules with delayed gradients beside 1F1B's, on the quickstart's model and data: a table and a picture.

    python benchmarks/delayed_losses.py [--rates 0.003 0.001] [--steps 200] [--out docs/images/delayed-losses.svg]

The runs, one after another, have four stages, and the same seed, batches and learning rates. A step is an update after the same 32
sequences in all of them. The picture has those of the first rate.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
os.environ.setdefault("SHARDYARD_TEST_PATIENCE_S", "600")  # a run takes longer than what a test waits for

from harness.ranks import train  # noqa: E402

#: Steps between validations.
EVERY: Final = 10
#: Name → what its layout has beside four stages. 2BW needs four micro-batches or more; eight have four sequences each.
RUNS: Final[dict[str, dict[str, Any]]] = {
    "1f1b": {"schedule": "1f1b", "micro_batch": 4},
    "2bw": {"schedule": "2bw", "micro_batch": 4},
    "pipedream": {"schedule": "pipedream"},
    "pipedream, vertical sync": {"schedule": "pipedream", "vertical_sync": True},
}

#: (step, loss) of each validation.
Curve = Sequence[tuple[int, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.003, 0.001], help="peak learning rates")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "delayed-losses.svg")
    options = parser.parse_args()
    if options.steps % (2 * EVERY):
        parser.error(f"--steps: {options.steps} is no multiple of {2 * EVERY}")
    found: dict[tuple[float, str], Curve] = {}
    with tempfile.TemporaryDirectory() as folder:
        for rate in options.rates:
            for name, layout in RUNS.items():
                found[rate, name] = losses(rate, layout, options.steps, Path(folder), f"{name}-{rate}")
                print(f"{name}, {rate:g}: {found[rate, name][-1][1]:.3f}", file=sys.stderr, flush=True)
    print(table(found, [options.steps // 2, options.steps]))
    first = options.rates[0]
    title = f"Validation loss by step, learning rate {first:g}"
    options.out.write_text(drawn({name: curve for (rate, name), curve in found.items() if rate == first}, title))


def table(found: Mapping[tuple[float, str], Curve], steps: Sequence[int]) -> str:
    """The losses after these steps in Markdown: a row for each schedule, and columns for each rate."""
    rates = list(dict.fromkeys(rate for rate, _ in found))
    rows = [["schedule", *(f"{rate:g}: step {step}" for rate in rates for step in steps)]]
    rows.append(["---"] * len(rows[0]))
    for name in dict.fromkeys(name for _, name in found):
        rows.append([name, *(f"{dict(found[rate, name])[step]:.3f}" for rate in rates for step in steps)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def losses(rate: float, layout: Mapping[str, Any], steps: int, folder: Path, name: str) -> Curve:
    """The validations of a run of the quickstart on four stages."""
    spec = yaml.safe_load((ROOT / "examples" / "quickstart.yaml").read_text())["train"]
    spec |= {
        "layout": {"pipeline": 4, **layout},
        "optimizer": {**spec["optimizer"], "lr": rate},
        "steps": steps,
        "eval": {**spec["eval"], "every": EVERY},
        "precision": "fp32",
        "checkpoint": {"final": False},
        "snapshot": {"every": 0},
        "probe": {"every": None},
    }
    events = train(spec, folder, name)["events"]
    return [(data["step"], data["loss"]) for kind, data in events if kind == "eval"]


#: Colours that readers who see fewer of them can distinguish (Okabe and Ito), each with its own dashes.
_STYLES: Final = (("#222222", ""), ("#0072b2", "8 3"), ("#d55e00", "2 3"), ("#009e73", "10 3 2 3"))
_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 570, 40, 380
#: Between two labels at the ends of curves.
_APART: Final = 18


def drawn(curves: Mapping[str, Curve], title: str) -> str:
    """An SVG of the curves, each with its name at its end."""
    steps = [step for curve in curves.values() for step, _ in curve]
    values = [loss for curve in curves.values() for _, loss in curve]
    last, low, high = max(steps), int(min(values) * 2) / 2, -int(-max(values) * 2 - 1) / 2

    def across(step: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * step / last

    def down(loss: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (loss - low) / (high - low)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, _TOP - 18, title),
    ]
    for half in range(round(2 * low), round(2 * high) + 1):
        y = down(half / 2)
        lines.append(f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="#dddddd"/>')
        lines.append(_text(_LEFT - 8, y + 4, f"{half / 2:.1f}", 'text-anchor="end"'))
    for step in range(0, last + 1, max(1, last // 4)):
        lines.append(_text(across(step), _BOTTOM + 20, str(step), 'text-anchor="middle"'))
    ends = _apart([down(curve[-1][1]) for curve in curves.values()])
    for (name, curve), (colour, dashes), end in zip(curves.items(), _STYLES, ends, strict=False):
        points = " ".join(f"{across(step):.1f},{down(loss):.1f}" for step, loss in curve)
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes or "none"}"'
        lines.append(f'<polyline points="{points}" {style}/>')
        lines.append(_text(_RIGHT + 8, end + 4, name, f'fill="{colour}"'))
    return "\n".join([*lines, "</svg>", ""])


def _apart(places: Sequence[float]) -> list[float]:
    """The places, moved up where one is too near to the one below."""
    found = list(places)
    below = float(_HEIGHT)
    for index in sorted(range(len(places)), key=places.__getitem__, reverse=True):
        below = found[index] = min(found[index], below - _APART)
    return found


def _text(x: float, y: float, content: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{content}</text>'


if __name__ == "__main__":
    main()
