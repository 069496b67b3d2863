import hashlib
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from shardyard.strategies.layout import Refusal
from shardyard.workers.data.errors import DataError
from shardyard.workers.data.tokenizer import document_end, load_tokenizer, vocab_size
from shardyard.workers.spec import DataSpec
from shardyard.workers.storage.errors import StorageUnreachable


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A real byte-level BPE of 400 tokens that asks for truncation and padding, which a corpus must not get."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([Path(__file__).read_text()], trainer)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_bytes_are_their_own_tokens() -> None:
    tokenizer = load_tokenizer(DataSpec())
    assert vocab_size(DataSpec()) == 256
    assert bytes(tokenizer.encode(["grüße", "b"])[0].tolist()).decode() == "grüße"
    assert tokenizer.separator.tolist() == [10]


def test_a_tokenizer_file_gives_ids_that_decode_to_the_text(trained: Path) -> None:
    spec = DataSpec(tokenizer=str(trained))
    tokenizer = load_tokenizer(spec)
    content = "def grüße():\n    return 'a longer text than the file truncates to'\n"
    (ids,) = tokenizer.encode([content])
    assert vocab_size(spec) == tokenizer.vocab == 400
    assert ids.dtype == np.uint32
    assert ids.max() < 400
    assert Tokenizer.from_file(str(trained)).decode(ids.tolist()) == content


def test_documents_end_with_the_tokenizers_own_end_of_text(trained: Path) -> None:
    tokenizer = load_tokenizer(DataSpec(tokenizer=str(trained)))
    assert tokenizer.separator.tolist() == [Tokenizer.from_file(str(trained)).token_to_id("<|endoftext|>")]


def test_an_end_of_text_that_another_file_names_is_in_the_digest(tmp_path: Path) -> None:
    """Documents then end with other tokens, so neither their cache nor a position in them is valid any more."""
    path, config = tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json"
    Tokenizer(models.WordLevel({"</s>": 0, "<eos>": 1, "[UNK]": 2}, unk_token="[UNK]")).save(str(path))
    spec = DataSpec(tokenizer=str(path), documents="packed")
    alone = load_tokenizer(spec)
    config.write_text('{"eos_token": "</s>"}')
    assert load_tokenizer(spec).digest == alone.digest
    config.write_text('{"eos_token": "<eos>"}')
    other = load_tokenizer(spec)
    assert (alone.end, other.end, other.separator.tolist()) == (0, 1, [1])
    assert other.digest != alone.digest
    assert load_tokenizer(DataSpec(tokenizer=str(tmp_path))).digest == other.digest


def test_texts_end_as_in_the_training_that_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    Tokenizer(models.WordLevel({"</s>": 0, "<eos>": 1, "[UNK]": 2}, unk_token="[UNK]")).save(str(path))
    spec = DataSpec(tokenizer=str(path))
    before = load_tokenizer(spec)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
    continued, other = (load_tokenizer(spec, lambda digest=digest: digest) for digest in (before.digest, "another"))  # type: ignore[misc]
    assert (continued.end, continued.separator.tolist(), continued.digest) == (0, [0], before.digest)
    assert (other.end, other.digest) == (1, load_tokenizer(spec).digest)


def test_dropout_is_switched_off_and_what_was_drawn_with_it_is_not_believed(tmp_path: Path) -> None:
    """Else each node would train on other tokens. A training of an older version continues with those in its cache."""
    path = tmp_path / "tokenizer.json"
    Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "</s>": 3}, [("a", "b")], dropout=0.5)).save(str(path))
    spec, before = DataSpec(tokenizer=str(path)), hashlib.sha256(path.read_bytes()).hexdigest()
    tokenizer = load_tokenizer(spec)
    assert [ids.tolist() for ids in tokenizer.encode(["ab" * 99])] == [[2] * 99]
    assert load_tokenizer(spec, lambda: before).digest == before != tokenizer.digest
    assert load_tokenizer(spec, lambda: tokenizer.digest).digest == tokenizer.digest


def test_storage_that_cannot_say_it_is_no_invalid_tokenizer(tmp_path: Path) -> None:
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "a"}')

    def away() -> str | None:
        raise StorageUnreachable("no answer")

    with pytest.raises(StorageUnreachable):
        load_tokenizer(DataSpec(tokenizer=str(tmp_path)), away)


def test_the_training_that_is_continued_is_asked_only_where_it_matters(trained: Path) -> None:
    """It may have to be read from a bucket."""
    asked: list[str] = []
    load_tokenizer(DataSpec(tokenizer=str(trained)), lambda: asked.append("again"))  # type: ignore[func-returns-value]
    assert not asked


def test_packed_bytes_end_with_a_byte_that_no_text_has() -> None:
    spec = DataSpec(documents="packed")
    tokenizer = load_tokenizer(spec)
    assert tokenizer.separator.tolist() == [255] and document_end(spec, tokenizer) == 255
    assert vocab_size(spec) == 256 and tokenizer.digest != load_tokenizer(DataSpec()).digest
    everything = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    assert not (tokenizer.encode([everything])[0] == 255).any()


def test_documents_are_packed_only_where_their_end_shows(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "endless.json"
    Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")).save(str(path))
    joined, packed = (DataSpec(tokenizer=str(path), documents=kind) for kind in ("joined", "packed"))
    assert document_end(joined, load_tokenizer(joined)) is None
    with pytest.raises(Refusal, match="has no end-of-text token") as refused:
        document_end(packed, load_tokenizer(packed))
    assert refused.value.field == "data.documents"
    known = DataSpec(tokenizer=str(trained), documents="packed")
    assert [document_end(known, load_tokenizer(known))] == load_tokenizer(known).separator.tolist()


def test_ids_with_gaps_count_up_to_the_highest(tmp_path: Path) -> None:
    path = tmp_path / "gaps.json"
    Tokenizer(models.WordLevel({"a": 0, "b": 900, "[UNK]": 1}, unk_token="[UNK]")).save(str(path))
    assert vocab_size(DataSpec(tokenizer=str(path))) == 901


@pytest.mark.parametrize("content", ["", "{", "{}", '{"model": {"type": "BPE"}}', "\xff"])
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        vocab_size(DataSpec(tokenizer=str(path)))
    assert caught.value.code == "invalid_tokenizer"
    assert caught.value.field == "data.tokenizer"


@pytest.mark.parametrize("name", ["none.json", ".", "nul\0byte"])
def test_a_missing_tokenizer_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        vocab_size(DataSpec(tokenizer=f"{tmp_path}/{name}"))
    assert caught.value.code == "missing_file"
