"""The core of the parity grid: few cases in which every two values that can stand in one spec do so once.

A case is a value for each factor. Most faults of a combination are faults of two values that meet (Kuhn, Wallace and Gallo, "Software fault
interactions", 2004), so a list that has every legal pair finds nearly all that the whole grid finds.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from shardyard.strategies.layout import Refusal
from shardyard.workers.spec import TrainSpec

from .models import LLAMA, MIXTURE

Case = dict[str, str]

#: Factor → word → what it puts into the layout or the train spec. The first word of each is its absence.
FACTORS: dict[str, dict[str, dict[str, Any]]] = {
    "data": {"one": {}, "data2": {"data": 2}, "data4": {"data": 4}},
    "tensor": {"whole": {}, "tensor2": {"tensor": 2}, "tensor2plain": {"tensor": 2, "sequence": False}},
    "context": {"all": {}, "ring2": {"context": 2}, "ulysses2": {"context": 2, "ulysses": 2}},
    "expert": {"dense": {}, "expert2": {"expert": 2}},
    "pipeline": {
        "flat": {},
        **{
            word: {"pipeline": 2, "schedule": word}
            for word in ("gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev")
        },
    },
    "zero": {"zero0": {}, "zero1": {"zero": 1}, "zero2": {"zero": 2}, "zero3": {"zero": 3}},
    "recompute": {"kept": {}, "full": {}, "selective": {}, "every-2": {}},
    "precision": {"fp64": {}, "fp32": {}, "bf16": {}, "fp16": {}},
}
MOST_RANKS = 4


def layout_of(case: Case) -> dict[str, Any]:
    """The case's layout, with four micro-batches of a global batch of 16, where every order of two ranks has come to its steady state."""
    parts = {key: value for factor, word in case.items() for key, value in FACTORS[factor][word].items()}
    return {**parts, "micro_batch": 4 // parts.get("data", 1)}


def changes_of(case: Case) -> dict[str, Any]:
    """What the case changes of the train spec beside its layout."""
    recompute = "none" if case["recompute"] == "kept" else case["recompute"]
    model = MIXTURE if case["expert"] != "dense" else LLAMA
    return {"model": model, "recompute": recompute, "precision": case["precision"]}


def name_of(case: Case) -> str:
    """The case in words, without what is absent from it."""
    words = [word for factor, word in case.items() if word != next(iter(FACTORS[factor])) or factor == "precision"]
    return "-".join(words)


def case_of(name: str) -> Case:
    """The case that has this name: `name_of` backwards."""
    left, case = f"-{name}-", Case()
    for factor, words in FACTORS.items():
        # The longest first: interleaved-zb begins with interleaved.
        case[factor] = next((word for word in sorted(words, key=len, reverse=True) if f"-{word}-" in left), "") or next(
            iter(words)
        )
        left = left.replace(f"-{case[factor]}-", "-")
    assert left == "-", f"{name}: no factor has {left.strip('-')}"
    return case


def legal_cases() -> Iterator[Case]:
    """Every case of at most `MOST_RANKS` ranks that a submission would accept."""
    for words in itertools.product(*FACTORS.values()):
        case = dict(zip(FACTORS, words, strict=True))
        if case["precision"] == "fp64" and _legal(case):  # a precision changes nothing of the others
            yield from ({**case, "precision": precision} for precision in FACTORS["precision"])


def _legal(case: Case) -> bool:
    layout = layout_of(case)
    ranks = layout.get("data", 1) * layout.get("tensor", 1) * layout.get("context", 1) * layout.get("pipeline", 1)
    if ranks > MOST_RANKS or (layout.get("zero") and layout.get("data", 1) * layout.get("context", 1) == 1):
        return False
    spec = {**changes_of(case), "layout": layout, "data": {"seq_len": 32}, "global_batch": 16, "steps": 4}
    try:
        TrainSpec.model_validate(spec).check()
    except (Refusal, ValueError):
        return False
    return True


def pairs_of(case: Case) -> Iterator[tuple[tuple[str, str], ...]]:
    yield from itertools.combinations(case.items(), 2)


def covering(cases: Iterable[Case]) -> list[Case]:
    """A short list of cases with every pair of them, greedily."""
    pool = list(cases)
    wanted = {pair for case in pool for pair in pairs_of(case)}
    chosen: list[Case] = []
    while wanted:
        best = max(pool, key=lambda case: sum(pair in wanted for pair in pairs_of(case)))
        wanted.difference_update(pairs_of(best))
        chosen.append(best)
    return chosen


if __name__ == "__main__":
    for chosen in covering(legal_cases()):
        print(f'    "{name_of(chosen)}",')
