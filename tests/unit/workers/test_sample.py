"""A model writes what transformers' forward passes say, from its checkpoint as from its export; a seed draws the same text again."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from harness.stored_checkpoints import checkpoint_path, save_checkpoint, save_model_checkpoint

from shardyard.strategies.layout import Refusal
from shardyard.workers.checkpoint.errors import CheckpointError
from shardyard.workers.data.errors import DataError
from shardyard.workers.data.tokenizer import END_BYTE, ENDING_BYTES, FileTokenizer
from shardyard.workers.huggingface.export import export
from shardyard.workers.sample import Draw, Writer, of_checkpoint, of_export
from shardyard.workers.storage.open_folder import folder_at

PROMPT, TOKENS, CONTEXT = "def sum", 30, 16
GREEDY = Draw(TOKENS, temperature=0.0)


def theirs(folder: Path) -> str:
    """The likeliest byte after the last `CONTEXT` bytes, again and again, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = list(PROMPT.encode())
    with torch.no_grad():
        for _ in range(TOKENS):
            ids.append(int(model(torch.tensor([ids[-CONTEXT:]])).logits[0, -1].argmax()))
    return bytes(ids[len(PROMPT) :]).decode(errors="replace")


def test_the_likeliest_text_is_that_of_transformers(tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1, seq_len=CONTEXT)
    export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "out")))
    writer = of_checkpoint(folder_at(str(checkpoint_path(tmp_path, 1))))
    exported = of_export(tmp_path / "out")
    assert (writer.context, exported.context) == (CONTEXT, CONTEXT), "later positions may be untrained"
    expected = theirs(tmp_path / "out")
    for one in (writer, Writer(exported.model, exported.tokenizer, CONTEXT)):
        assert one.write(PROMPT, GREEDY) == expected


def test_a_seed_draws_the_same_text_again(tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1, seq_len=CONTEXT)
    writer = of_checkpoint(folder_at(str(checkpoint_path(tmp_path, 1))))
    first, again, other = (writer.write("", Draw(20, 1.0, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert writer.write(PROMPT, Draw(20, 1e-6)) == writer.write(PROMPT, Draw(20, 0.0)), "cold is greedy"
    assert len(writer.write(PROMPT, Draw(1, 0.0)).encode()) <= 3


def test_what_cannot_be_sampled_says_why(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1)
    with pytest.raises(CheckpointError, match="module of your own"):
        of_checkpoint(folder_at(str(checkpoint_path(tmp_path, 1))))
    save_model_checkpoint(tmp_path, 2)
    checkpoint = folder_at(str(checkpoint_path(tmp_path, 2)))
    with pytest.raises(DataError) as missing:
        of_checkpoint(checkpoint, str(tmp_path / "nowhere.json"))
    assert missing.value.code == "missing_file"
    with pytest.raises(Refusal, match="300 tokens, but the model has 256"):
        of_checkpoint(checkpoint, str(words(tmp_path / "other.json", 300)))


def test_it_ends_with_the_document(tmp_path: Path) -> None:
    """The likeliest token is the first one: the end of a text."""
    writer = of_zeros(tmp_path, words(tmp_path / "tokenizer.json", 200))
    assert writer.tokenizer.end == 0
    assert writer.write("w7 w8", GREEDY) == ""


def test_a_space_stands_between_the_prompt_and_the_first_word(tmp_path: Path) -> None:
    """A SentencePiece tokenizer's space is a part of its words, and is dropped at the beginning of what is decoded."""
    writer = of_zeros(tmp_path, spaced(tmp_path / "spaced.json"))
    assert writer.write("b b", Draw(2, 0.0)) == " a a"
    assert writer.write("", Draw(2, 0.0)) == "a a"


def test_a_tokenizer_without_a_separator_needs_a_prompt(tmp_path: Path) -> None:
    writer = of_zeros(tmp_path, spaced(tmp_path / "spaced.json", lines=False))
    with pytest.raises(Refusal, match="no end of text and no token for a newline") as refused:
        writer.write("", GREEDY)
    assert (refused.value.field, "--prompt" in refused.value.remedy) == ("prompt", True)


def test_a_mixture_chooses_by_its_trained_biases(tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1, family="moe", numbers={"balance": "bias"})
    model: Any = of_checkpoint(folder_at(str(checkpoint_path(tmp_path, 1)))).model
    assert model.blocks["0"].mlp.expert_bias.tolist() == [0, 1, 2, 3]


def test_a_tokenizer_that_has_changed_is_refused_unless_it_is_named(tmp_path: Path) -> None:
    path = words(tmp_path / "tokenizer.json", 200)
    save_model_checkpoint(tmp_path, 1, str(path), digest=FileTokenizer(path).digest)
    checkpoint = folder_at(str(checkpoint_path(tmp_path, 1)))
    assert of_checkpoint(checkpoint).tokenizer.vocab == 200
    words(path, 201)
    with pytest.raises(Refusal, match="has changed since the training") as refused:
        of_checkpoint(checkpoint)
    assert "--tokenizer" in refused.value.remedy
    assert of_checkpoint(checkpoint, str(path)).tokenizer.vocab == 201


def test_a_text_ends_as_in_a_training_of_an_older_version(tmp_path: Path) -> None:
    """It took the usual name, whatever the tokenizer_config.json names."""
    path = words(tmp_path / "tokenizer.json", 200)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "w1"}')
    save_model_checkpoint(tmp_path, 1, str(path), digest=hashlib.sha256(path.read_bytes()).hexdigest())
    save_model_checkpoint(tmp_path, 2, str(path), digest=FileTokenizer(path).digest)
    found = [of_checkpoint(folder_at(str(checkpoint_path(tmp_path, step)))).tokenizer.end for step in (1, 2)]
    assert found == [0, 1]


def test_an_export_without_its_tokenizer_is_not_read_as_bytes(tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1, numbers={"vocab": 300})
    export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "out")))
    with pytest.raises(Refusal, match="300 tokens, not the 256 of bytes") as refused:
        of_export(tmp_path / "out")
    assert "--tokenizer" in refused.value.remedy
    assert of_export(tmp_path / "out", "bytes").tokenizer.vocab == 256


@pytest.mark.parametrize(
    "trained", [{"documents": "packed"}, {"digest": ENDING_BYTES}], ids=["documents", "a digest alone, as before"]
)
def test_a_model_of_packed_documents_needs_a_prompt(trained: dict[str, str], tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1, **trained)  # type: ignore[arg-type]
    writer = of_checkpoint(folder_at(str(checkpoint_path(tmp_path, 1))))
    with pytest.raises(Refusal, match="packed documents") as refused:
        writer.write("", GREEDY)
    assert (refused.value.field, "--prompt" in refused.value.remedy) == ("prompt", True)
    assert writer.write("a", Draw(1)), "a prompt is continued"
    export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "out")))
    exported = of_export(tmp_path / "out")
    assert (exported.packed, exported.tokenizer.end) == (True, writer.tokenizer.end) == (True, END_BYTE)
    ends = json.loads((tmp_path / "out/generation_config.json").read_text())["eos_token_id"]
    assert ends == (END_BYTE if "digest" in trained else None)


def test_no_expert_leaves_out_the_token_that_is_continued(tmp_path: Path) -> None:
    """The capacity of a training is that of whole sequences."""
    import torch

    save_model_checkpoint(tmp_path, 1, family="moe", numbers={"capacity_factor": 0.25})
    model = of_checkpoint(folder_at(str(checkpoint_path(tmp_path, 1)))).model
    ids = torch.tensor([[*b"def sum(values"]])
    for length in (2, 5):
        torch.testing.assert_close(model(ids[:, :length]), model(ids)[:, :length])


def test_a_sliding_window_bounds_the_context(tmp_path: Path) -> None:
    save_model_checkpoint(tmp_path, 1, numbers={"window": 8})
    export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "out")))
    assert (
        of_export(tmp_path / "out").context == of_checkpoint(folder_at(str(checkpoint_path(tmp_path, 1)))).context == 8
    )


def words(path: Path, count: int) -> Path:
    """A tokenizer of this number of words, the first of which is the end of a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = ["<|endoftext|>", *(f"w{n}" for n in range(1, count))]
    tokenizer = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path))
    return path


def spaced(path: Path, lines: bool = True) -> Path:
    """A tokenizer as SentencePiece's, of the words "a" and "b"; without `lines` a newline is no token, and there is no end of a text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"\u2581a": 0, "\u2581b": 1}, unk_token="\u2581b"))
    tokenizer.normalizer = None if lines else normalizers.Strip()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(path))
    return path


def of_zeros(folder: Path, tokenizer: Path) -> Writer:
    """A model of which every logit is the same, so that the likeliest token is the first one."""
    save_model_checkpoint(folder, 1)
    writer = of_checkpoint(folder_at(str(checkpoint_path(folder, 1))), str(tokenizer))
    for value in writer.model.parameters():
        value.zero_()
    return writer
