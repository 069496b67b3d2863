"""The page shows every number, loads nothing, and takes no text of a spec for HTML."""

import re

from shardyard.api.cli.certificate_page import page
from shardyard.service.schemas.certificate import Certificate, NumbersCompared
from shardyard.service.schemas.resource import CommVolume

FLOW = CommVolume(
    axis="data",
    collective="all_gather",
    calls=1,
    elements=10.0,
    bytes=80.0,
    formula="Ψ(N−1)/N",
    formula_elements=10.0,
    formula_bytes=80.0,
    reason=None,
)


def test_the_page_is_whole_in_itself() -> None:
    numbers = [
        NumbersCompared(what="losses", compared=2, difference=2e-16, bound=1e-10, where="step 2", equal=True),
        NumbersCompared(what="parameters", compared=9, difference=None, bound=1e-10, where="w", equal=False),
    ]
    certificate = Certificate(
        name="proof",
        made_at=0.0,
        equal=False,
        layout="data 2",
        world_size=2,
        steps=2,
        parameters=9,
        losses=[5.0, 4.25],
        losses_alone=[5.0, 4.25],
        numbers=numbers,
        traffic=[FLOW],
        memory=[],
        changes=["model.layers: 32 → 2"],
        given={},
        trained={"model": {"import": "<script>alert(1)</script>"}},
        versions={"torch": "2.13"},
        machine="x",
    )
    text = page(certificate, "0123456789abcdef")
    for shown in (
        "proof: different from one process",
        "2.00e-16",
        "not finite or missing",
        "4.25",
        "Ψ(N−1)/N",
        "32 → 2",
        "0123456789abcdef",
        "1970-01-01",
    ):
        assert shown in text
    assert "<script" not in text and not re.search(r"\b(src|href)=", text)
    assert text.count("<table>") == text.count("</table>") == 4
