"""What an export has beside its weights: the tokenizer with all that belongs to it, as transformers reads it back."""

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from harness.stored_checkpoints import checkpoint_path, save_model_checkpoint

from shardyard.workers.checkpoint.manifest import read
from shardyard.workers.data.tokenizer import FileTokenizer
from shardyard.workers.huggingface.export import export, has_tokenizer
from shardyard.workers.storage.open_folder import folder_at

TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
CHAT = [{"role": "user", "content": "a b"}]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A tokenizer as a chat model is published with."""
    from tokenizers import Tokenizer, models

    folder = tmp_path / "published"
    folder.mkdir()
    names = [*SPECIAL, "a", "b", "[UNK]"]
    tokenizer = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "TheirOwnTokenizer", "auto_map": {"AutoTokenizer": ["theirs.py", None]}}
    named: dict[str, Any] = {"eos_token": {"content": "<|im_end|>"}, "model_max_length": 77}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | named))
    return folder


@pytest.mark.parametrize("where", ["file", "config"])
def test_a_chat_template_survives(tmp_path: Path, published: Path, where: str) -> None:
    from transformers import AutoTokenizer

    config = published / "tokenizer_config.json"
    if where == "file":
        (published / "chat_template.jinja").write_text(TEMPLATE)
    else:
        config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": TEMPLATE}))
    save_model_checkpoint(tmp_path, 1, tokenizer=str(published / "tokenizer.json"))
    made = Path(export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "out"))).path)
    found = AutoTokenizer.from_pretrained(made)
    assert found.apply_chat_template(CHAT, tokenize=False) == "<|im_start|>user\na b<|im_end|>\n"
    assert (found.eos_token, found.model_max_length) == ("<|im_end|>", 77)
    assert json.loads((made / "generation_config.json").read_text())["eos_token_id"] == [0, 2]
    assert json.loads((made / "config.json").read_text())["eos_token_id"] == 0
    assert "auto_map" not in (made / "tokenizer_config.json").read_text()


def test_a_tokenizer_alone_has_its_end_of_text(tmp_path: Path, published: Path) -> None:
    alone = tmp_path / "mine.json"
    (published / "tokenizer.json").rename(alone)
    save_model_checkpoint(tmp_path, 1, tokenizer=str(alone))
    made = Path(export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "out"))).path)
    config = json.loads((made / "tokenizer_config.json").read_text())
    inputs = {"model_input_names": ["input_ids", "attention_mask"]}
    assert config == inputs | {"eos_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    assert json.loads((made / "generation_config.json").read_text())["eos_token_id"] == 0


@pytest.mark.parametrize("end", [["</s>"], {"__type": "AddedToken"}, 7])
def test_an_end_that_is_no_text_is_left_out(tmp_path: Path, published: Path, end: Any) -> None:
    (published / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))
    save_model_checkpoint(tmp_path, 1, tokenizer=str(published / "tokenizer.json"))
    made = Path(export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "out"))).path)
    assert json.loads((made / "generation_config.json").read_text())["eos_token_id"] == 0


def test_each_file_is_a_sign_of_life(tmp_path: Path) -> None:
    """A rank that exports for longer than ranks may be without progress is no hang."""
    save_model_checkpoint(tmp_path, 1)
    beats: list[int] = []
    made = export(
        folder_at(str(checkpoint_path(tmp_path, 1))),
        folder_at(str(tmp_path / "out")),
        shard_bytes=1 << 12,
        beat=lambda: beats.append(1),
    )
    assert made.files > 1 and len(beats) > made.files, "those that are verified, and those that are written"


@pytest.mark.parametrize(("before", "ends"), [("now", 2), ("by an older version", [0, 2])])
def test_the_end_of_text_is_that_of_the_training(tmp_path: Path, published: Path, before: str, ends: Any) -> None:
    """Here no template uses the eos_token, so texts end with it. An older version took the usual name."""
    path = published / "tokenizer.json"
    digest = FileTokenizer(path).digest if before == "now" else hashlib.sha256(path.read_bytes()).hexdigest()
    save_model_checkpoint(tmp_path, 1, tokenizer=str(path), digest=digest)
    made = Path(export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "out"))).path)
    assert json.loads((made / "generation_config.json").read_text())["eos_token_id"] == ends
    assert FileTokenizer(made).digest == FileTokenizer(path).digest


@pytest.mark.parametrize("now", ["the same", "changed", "no tokenizer", "gone"])
def test_only_the_tokenizer_of_the_training_is_exported(now: str, tmp_path: Path, published: Path) -> None:
    path = published / "tokenizer.json"
    save_model_checkpoint(tmp_path, 1, tokenizer=str(published), digest=FileTokenizer(path).digest)
    if now == "changed":
        path.write_text(path.read_text() + " ")
    elif now == "no tokenizer":
        path.write_text("{}")
    elif now == "gone":
        path.unlink()
    made = export(folder_at(str(checkpoint_path(tmp_path, 1))), folder_at(str(tmp_path / "out")))
    there, why = (
        [(Path(made.path) / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")],
        made.tokenizer_missing,
    )
    assert there == [now == "the same"] * 2
    assert json.loads((Path(made.path) / "shardyard.json").read_text()).get("tokenizer_missing") == why
    assert why is None if now == "the same" else (why and str(published) in why and "export again" in why)


@pytest.mark.parametrize(
    "named", ["private/published", "private/published/tokenizer.json", "~no-such-user/tokenizer.json"]
)
def test_an_export_of_a_user_who_may_not_read_the_tokenizer_has_none(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Path.stat

    def stat(self: Path, **options: Any) -> os.stat_result:  # modes do not hold for root
        if self.is_relative_to(tmp_path / "private"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return usual(self, **options)

    monkeypatch.setattr(Path, "stat", stat)
    path = named if named.startswith("~") else str(tmp_path / named)
    save_model_checkpoint(tmp_path, 1, tokenizer=path)
    source = folder_at(str(checkpoint_path(tmp_path, 1)))
    assert not has_tokenizer(read(source))
    missing = export(source, folder_at(str(tmp_path / "out"))).tokenizer_missing
    assert missing and f"{path} {'does not exist' if named.startswith('~') else 'cannot be read'} on" in missing
