"""The page shows every number, loads nothing, and takes no text of a spec for HTML."""

import re

from harness.certificates import certificate

from shardyard.api.certificate_page import page
from shardyard.service.schemas.certificate import NumbersCompared, Reference
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
    found = certificate(
        made_at=0.0,
        equal=False,
        numbers=numbers,
        traffic=[FLOW],
        changes=["model.layers: 32 → 2"],
        trained={"model": {"import": "<script>alert(1)</script>"}},
        code="c0de" * 16,
    )
    text = page(found, "0123456789abcdef")
    for shown in (
        "proof: different from one process",
        "2.00e-16",
        "not finite or missing",
        "4.25",
        "Ψ(N−1)/N",
        "32 → 2",
        "0123456789abcdef",
        "1970-01-01",
        "c0de" * 16,
    ):
        assert shown in text
    assert "<script" not in text and not re.search(r"\b(src|href)=", text)
    assert text.count("<table>") == text.count("</table>") == 4


def test_what_the_one_process_did_besides_is_shown_with_what_it_changes() -> None:
    reference = Reference(extra="rounds the same blocks", losses_without=[5.0, 4.125], difference=0.03125)
    text = page(certificate(reference=reference), "0123456789abcdef")
    for shown in ("proof: equal to one process that rounds the same blocks", "by up to 3.12e-02 of a loss", "4.125"):
        assert shown in text
    unknown = reference.model_copy(update={"difference": None})
    assert "by an unknown amount" in page(certificate(reference=unknown), "0123456789abcdef")
