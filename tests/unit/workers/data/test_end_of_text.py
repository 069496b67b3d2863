"""Which token ends a text: that of the tokenizer's own files, unless it ends the turns of a chat."""

import json
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.data.end_of_text import end_of_text

TURNS = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}{{ eos_token }}"


@pytest.mark.parametrize(
    ("names", "config", "end"),
    [
        (["<|endoftext|>", "</s>"], None, "<|endoftext|>"),
        (["a"], None, None),
        (["</s>", "<eos>"], {"eos_token": "<eos>"}, "<eos>"),  # as of Gemma, which has HTML's </s>
        (["<｜end▁of▁sentence｜>"], {"eos_token": {"content": "<｜end▁of▁sentence｜>"}}, "<｜end▁of▁sentence｜>"),
        (["</s>", "<|im_end|>"], {"eos_token": "<|im_end|>", "chat_template": TURNS}, "</s>"),
        (["<end>", "<|im_end|>"], {"eos_token": "<|im_end|>", "chat_template": TURNS}, "<|im_end|>"),
        (["</s>", "<eos>"], {"eos_token": "<eos>", "chat_template": TURNS}, "<eos>"),
        (["</s>", "<|im_end|>"], {"eos_token": "<|im_end|>", "chat_template": [{"template": TURNS}]}, "</s>"),
        (["</s>"], {"eos_token": "<gone>"}, "</s>"),
        (["</s>"], {"eos_token": ["</s>"]}, "</s>"),
        (["</s>"], [], "</s>"),
    ],
)
def test_is_the_tokenizers_own_before_a_usual_name(
    names: list[str], config: Any, end: str | None, tmp_path: Path
) -> None:
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert end_of_text(names, tmp_path / "tokenizer.json") == end


def test_a_chat_template_may_be_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    (tmp_path / "chat_template.jinja").write_text(TURNS)
    assert end_of_text(["</s>", "<|im_end|>"], tmp_path / "tokenizer.json") == "</s>"


def test_files_beside_a_tokenizer_of_another_name_are_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
    assert end_of_text(["</s>", "<eos>"], tmp_path / "mine.json") == "</s>"


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "\xff"])
def test_a_config_that_cannot_be_read_is_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(content)
    assert end_of_text(["</s>"], tmp_path / "tokenizer.json") == "</s>"
