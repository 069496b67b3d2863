import pytest
import torch
from harness.decoders import decoder, filled, tiny, token_ids
from torch import nn

from shardyard.workers.models.registry import make

FAMILIES = ("llama", "gpt2")


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_token_ids_to_logits(family: str) -> None:
    arch = tiny(family)
    logits = decoder(arch)(token_ids(arch, 0, batch=3, seq=17))
    assert logits.shape == (3, 17, arch.vocab)
    assert logits.dtype == torch.float64


@pytest.mark.parametrize("family", FAMILIES)
def test_no_position_sees_a_later_one(family: str) -> None:
    arch = tiny(family)
    model, tokens = decoder(arch), token_ids(arch, 0)
    changed = tokens.clone()
    changed[:, 20:] = token_ids(arch, 5)[:, 20:]
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :20], after[:, :20])
    assert not torch.equal(before[:, 20:], after[:, 20:])


@pytest.mark.parametrize("family", FAMILIES)
def test_order_of_tokens_matters(family: str) -> None:
    arch = tiny(family)
    model, tokens = decoder(arch), token_ids(arch, 0)
    swapped = tokens[:, [1, 0, *range(2, tokens.shape[1])]]
    assert not torch.allclose(model(tokens)[:, -1], model(swapped)[:, -1], atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
def test_has_as_many_parameters_as_its_architecture_says(family: str, tied: bool) -> None:
    arch = tiny(family, tied=tied)
    with torch.device("meta"):
        model = make(arch)
    assert sum(p.numel() for p in model.parameters()) == arch.parameters


@pytest.mark.parametrize("family", FAMILIES)
def test_stages_in_sequence_equal_the_whole_and_keep_its_names(family: str) -> None:
    arch = tiny(family, layers=3)
    whole, tokens = decoder(arch), token_ids(arch, 0)
    stages = [stage(arch, {"0"}), stage(arch, {"1"}), stage(arch, {"2"})]
    hidden = tokens
    for part in stages:
        hidden = part(hidden)
    assert torch.equal(hidden, whole(tokens))
    names = [name for part in stages for name, _ in part.named_parameters()]
    assert sorted(names) == sorted(name for name, _ in whole.named_parameters())


def stage(arch, keep: set[str]) -> nn.Module:
    with torch.device("meta"):
        model = make(arch)
    for index in set(model.blocks) - keep:
        del model.blocks[index]
    if "0" not in keep:
        model.embed = model.positions = None
    if str(arch.layers - 1) not in keep:
        model.norm = model.head = None
    return filled(model, arch)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tied_head_is_the_embedding_and_learns_from_both_ends(family: str) -> None:
    arch = tiny(family, tied=True)
    model = decoder(arch)
    assert model.head.weight is model.embed.weight
    assert "head.weight" not in dict(model.named_parameters())
    model.to_empty(device="cpu")
    model.tie()
    assert model.head.weight is model.embed.weight


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_stays_close_to_float64(family: str, dtype: torch.dtype) -> None:
    arch, loss = tiny(family), []
    for kind in (torch.float64, dtype):
        logits = decoder(arch, kind)(token_ids(arch, 0))
        assert logits.dtype == kind
        loss.append(nn.functional.cross_entropy(logits.double().flatten(0, 1), token_ids(arch, 1).flatten()))
    loss[1].backward()
    assert loss[1].item() == pytest.approx(loss[0].item(), rel=2e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_autocast_runs_over_fp32_weights(family: str) -> None:
    arch = tiny(family)
    model, tokens = decoder(arch, torch.float32), token_ids(arch, 0)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens)
    assert torch.allclose(logits.float(), model(tokens), atol=5e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_documents_are_computed_as_if_each_stood_alone(family: str) -> None:
    arch = tiny(family)
    model, tokens = decoder(arch), token_ids(arch, 0, batch=2, seq=17)
    ends, starts = ((5, 6, 17), (16, 17)), torch.zeros(2, 18, dtype=torch.int64)
    parts = [(row, slice(*pair)) for row in (0, 1) for pair in zip((0, *ends[row]), ends[row], strict=False)]
    for row, part in parts:
        starts[row, part] = part.start
    packed = model(tokens, starts=starts)
    for row, part in parts:
        torch.testing.assert_close(packed[row : row + 1, part], model(tokens[row : row + 1, part]), rtol=0, atol=1e-13)
