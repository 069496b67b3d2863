"""A text that is kept reads to the document that was checked, and a change leaves all other characters alone."""

import copy
import json
from typing import Any

import pytest

from shardyard.api.spec_document import parse, read_text
from shardyard.service.spec_text import _TOKEN, MOST_BYTES, SpecText, changed, kept

TEXT = """\
# Why this run: the baseline of June.
name: nano   # short

train:
  data: { source: text, files: ["corpus/*.txt"],  tokenizer: 'tok.json' }  # all of it
  layout:
    # four ranks
    data: 2
    tensor: 2
  stages:
    - name: warm   # first
      lr: 1e-3
    - {name: cool, lr: 3e-4}
  resume_from:  # later
  note: |  # kept as it is
    two
      lines

  # the end of train
labels: {}
"""
LEFT_OUT = "# (left out: it may hold a credential)"


def edited(text: str, change: dict[str, Any]) -> str | None:
    """`change`: dotted path → value."""
    document = copy.deepcopy(read_text(SpecText("yaml", text)))
    for path, value in change.items():
        *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        at = document
        for part in above:
            at = at[part]
        at[last] = value
    found = changed(SpecText("yaml", text), document, read_text)
    assert found is None or json.dumps(parse(found.text.encode(), "yaml")) == json.dumps(document)
    return None if found is None else found.text


@pytest.mark.parametrize(
    ("change", "old", "new"),
    [
        ({"name": "nano-fork"}, "name: nano   # short", "name: nano-fork   # short"),
        ({"train.data.files.0": "/x/corpus/*.txt"}, '["corpus/*.txt"]', '["/x/corpus/*.txt"]'),
        ({"train.data.tokenizer": "/x y/tok.json"}, "'tok.json'", '"/x y/tok.json"'),
        ({"train.stages.0.lr": 0.01}, "lr: 1e-3", "lr: 0.01"),
        ({"train.stages.0.steps": 5}, "lr: 1e-3\n", "lr: 1e-3\n      steps: 5\n"),
        ({"train.stages.1.steps": 5}, "lr: 3e-4}", "lr: 3e-4, steps: 5}"),
        ({"train.resume_from": "/c/step-1"}, "resume_from:  # later", "resume_from: /c/step-1  # later"),
        ({"train.layout": {"data": 4}}, "", None),
        ({"train.layout.data": {"min": 1, "max": 4}}, "data: 2", "data: {min: 1, max: 4}"),
        ({"labels": {"parent": "job-1"}}, "labels: {}", "labels: {parent: job-1}"),
        ({"train.note": "one"}, "note: |  # kept as it is\n    two\n      lines\n", "note: one\n"),
        ({"train.seed": 7}, "      lines\n", "      lines\n  seed: 7\n"),
        ({"train.seed": "true"}, "      lines\n", '      lines\n  seed: "true"\n'),
        ({"train.seed": [1, {"a": None}]}, "      lines\n", "      lines\n  seed: [1, {a: null}]\n"),
    ],
)
def test_a_change_is_made_in_place(change: dict[str, Any], old: str, new: str | None) -> None:
    assert edited(TEXT, change) == (None if new is None else TEXT.replace(old, new))


def test_keys_that_are_added_at_one_place_belong_to_their_own_mappings() -> None:
    text = "name: a\ntrain:\n  data:\n    seq_len: 8  # short"
    change = {"train.data.source": "text", "train.steps": 3, "labels": {"a": "b"}}
    assert edited(text, change) == f"{text}\n    source: text\n  steps: 3\nlabels: {{a: b}}"


def test_a_text_that_cannot_be_changed_in_place_is_not_guessed() -> None:
    assert edited(TEXT, {"train": {"steps": 3}}) is None
    assert changed(SpecText("yaml", "# nothing\n"), {"a": 1}, read_text) is None
    assert changed(SpecText("yaml", "a: *b"), {"a": 1}, read_text) is None
    assert changed(SpecText("yaml", "- 1"), {"a": 1}, read_text) is not None


def test_lines_that_end_as_on_windows_are_read_the_same() -> None:
    found = edited("name: a  # x\r\ntrain:\r\n  steps: 3\r\n", {"train.seed": 1, "name": "b"})
    assert found is not None and found.startswith("name: b  # x\r\ntrain:\r\n  steps: 3")


def test_json_is_written_again() -> None:
    assert changed(SpecText("json", '{"a":1}'), {"a": 2}, read_text) == SpecText("json", '{\n  "a": 2\n}\n')


@pytest.mark.parametrize(
    "text", [TEXT, "name: a\n# tokenizer: ./tokenizer.json, tokens: 5\n", "# https://a.b/c:d@e\na: 1"]
)
def test_a_harmless_text_is_kept_as_it_is(text: str) -> None:
    assert kept(SpecText("yaml", text), read_text) == SpecText("yaml", text)


@pytest.mark.parametrize(
    "secret",
    [
        "HF_TOKEN: abcdef",
        "export WANDB_API_KEY=0123456789",
        "hf_abcdefghijklmnopqrstuvwx",
        "git clone https://me:ghx@example.org/a.git",
        "password = x",
    ],
)
def test_a_comment_that_may_hold_a_credential_is_left_out(secret: str) -> None:
    found = kept(SpecText("yaml", f"name: a  # {secret}\n# why\nsteps: 3\n  # env: {{ {secret} }}\n"), read_text)
    assert found == SpecText("yaml", f"name: a  {LEFT_OUT}\n# why\nsteps: 3\n  {LEFT_OUT}\n")


@pytest.mark.parametrize("head", ["command: [a]", "name: 'a'", "name: {b: c}", "note: |", "note: >2-"])
def test_a_comment_without_a_space_before_it_is_one_too(head: str) -> None:
    text = f"{head}# HF_TOKEN: abcdef\n" + "  b\n" * head.startswith("note")
    assert kept(SpecText("yaml", text), read_text) == SpecText("yaml", text.replace("# HF_TOKEN: abcdef", LEFT_OUT))


@pytest.mark.parametrize("word", ["a" * 500_000, "a://" + ":" * 500_000, "http://" * 70_000])
def test_one_long_word_is_searched_in_one_pass(word: str) -> None:
    # A search of the whole rest from each of its places takes longer than a test may.
    assert _TOKEN.search(word) is None


def test_a_value_that_the_spec_accepts_stays() -> None:
    text = "env:\n  HF_TOKEN_PATH: /run/token\n  MY_TOKEN: public\ncommand: 'echo # TOKEN=x'  # why\n"
    text += "script: |  # as bash\n  # HF_TOKEN: see the secrets\n  echo\n\nplain: a#password=x\n"
    assert kept(SpecText("yaml", text), read_text) == SpecText("yaml", text)
    end = "# TOKEN: x\n  # TOKEN: y\n"  # after the block of text
    assert kept(SpecText("yaml", text + end), read_text) == SpecText("yaml", f"{text}{LEFT_OUT}\n  {LEFT_OUT}\n")


@pytest.mark.parametrize(
    "text",
    [
        "name: &hf_abcdefghijklmnopqrst a\n",
        "# -----BEGIN RSA PRIVATE KEY-----\n# abc\nname: a\n",
        f"name: a  # {'x' * MOST_BYTES}\n",
    ],
)
def test_a_text_that_is_too_long_or_holds_a_credential_elsewhere_is_not_kept(text: str) -> None:
    assert kept(SpecText("yaml", text), read_text) is None
