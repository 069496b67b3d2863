"""A certificate as one page of HTML, without scripts and without anything that is loaded from elsewhere."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from ..service.schemas.certificate import Certificate, NumbersCompared
from ..service.schemas.resource import CommVolume

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #8886; vertical-align: top; }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8886; }
"""


def page(certificate: Certificate, fingerprint: str) -> str:
    """The page. `fingerprint`: of the key that has signed the certificate."""
    title = f"{certificate.name}: {'equal to' if certificate.equal else 'different from'} {one_process(certificate)}"
    made = datetime.fromtimestamp(certificate.made_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    facts = [
        ("Layout", certificate.layout),
        ("Ranks", str(certificate.world_size)),
        ("Steps", f"{certificate.steps}, in float64"),
        ("Parameters", "unknown" if certificate.parameters is None else f"{certificate.parameters:,}"),
        ("Made", f"{made} on {certificate.machine}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in certificate.versions.items())),
        ("Own modules", "none" if certificate.code is None else f"SHA-256 {certificate.code}"),
        ("Signed by", f"key {fingerprint} (Ed25519)"),
    ]
    parts = [
        f"<h1>{escape(title)}</h1>",
        _table((), facts),
        f"<h2>Numbers</h2><p>{escape(_compared(certificate))}</p>",
        _table(("Numbers", "Compared", "Largest difference", "Bound", "At"), map(_number, certificate.numbers)),
        "<h2>Losses</h2>",
        _table(_heads(certificate), _losses(certificate)),
        "<h2>Traffic of rank 0 in step 2</h2>",
        _table(("Axis", "Collective", "Bytes sent", "By formula", "Formula"), map(_flow, certificate.traffic)),
    ]
    if certificate.changes:
        smaller = "".join(f"<li>{escape(change)}</li>" for change in certificate.changes)
        parts.append(f"<h2>Smaller than the spec</h2><ul>{smaller}</ul>")
    parts.append(f"<h2>What was trained</h2><pre>{escape(json.dumps(certificate.trained, indent=2))}</pre>")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en">\n<head>{head}<style>{_STYLE}</style></head>\n<body>\n{body}\n</body>\n</html>\n'


def one_process(certificate: Certificate) -> str:
    """With what the layout was compared."""
    reference = certificate.reference
    return "one process" if reference is None else f"one process that {reference.extra}"


def _compared(certificate: Certificate) -> str:
    text = "The layout and one process without any strategy trained the same data from the same first weights."
    reference = certificate.reference
    if reference is None:
        return text
    far = "by an unknown amount" if reference.difference is None else f"by up to {reference.difference:.2e} of a loss"
    return f"{text} The process {reference.extra}, as the layout does. That changes the losses {far}."


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return f"<table><tr>{head}</tr>{''.join(map(_row, rows))}</table>" if heads else _facts(rows)


def _facts(rows: Iterable[Sequence[str]]) -> str:
    each = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows)
    return f"<table>{each}</table>"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _number(one: NumbersCompared) -> Sequence[str]:
    largest = "not finite or missing" if one.difference is None else f"{one.difference:.2e}"
    return one.what, f"{one.compared:,}", largest, f"{one.bound:.0e}", one.where


def _heads(certificate: Certificate) -> Sequence[str]:
    if certificate.reference is None:
        return "Step", "Layout", "One process"
    return "Step", "Layout", f"One process that {certificate.reference.extra}", "One process that only trains"


def _losses(certificate: Certificate) -> Iterable[Sequence[str]]:
    columns = [certificate.losses, certificate.losses_alone]
    if certificate.reference is not None:
        columns.append(certificate.reference.losses_without)
    rows = zip(*columns, strict=False)
    return [(str(step), *(f"{loss:.15g}" for loss in row)) for step, row in enumerate(rows, 1)]


def _flow(one: CommVolume) -> Sequence[str]:
    counted = "" if one.bytes is None else f"{one.bytes:,.0f}"
    said = "" if one.formula_bytes is None else f"{one.formula_bytes:,.0f}"
    return one.axis, one.collective, counted, said, one.formula or one.reason or ""
