"""Which token of a `tokenizer.json` ends a text. Imports no torch.

The file does not say it. The `tokenizer_config.json` beside it does: its `eos_token`, unless that ends each turn of a chat, as the chat
template shows. Then, and where there is no such file, it is the first of the usual names that the tokenizer has.
"""

import json
from collections.abc import Container
from pathlib import Path
from typing import Any, Final

from ..regular_files import read

#: Names that published tokenizers use for their end-of-text token, most common first.
END_OF_TEXT: Final = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "[SEP]")
#: Files beside a tokenizer.json that may have its chat template.
_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json")
_MOST_BYTES: Final = 64 << 20


def usual_end(names: Container[str]) -> str | None:
    """The first of the usual names among those of a tokenizer's tokens; None if it has none of them."""
    return next((name for name in END_OF_TEXT if name in names), None)


def end_of_text(names: Container[str], tokenizer: Path) -> str | None:
    """The name of the token that ends a text. `names`: those of the tokens in the file `tokenizer`; None if none of them is known to."""
    usual = usual_end(names)
    config = _config(tokenizer)
    own = token_text(config.get("eos_token"))
    if not isinstance(own, str) or own not in names:
        return usual
    return usual or own if own in _chat_template(config, tokenizer.parent) else own


def token_text(value: Any) -> Any:
    """The text of a special token that is an object; any other value unchanged. A token's other properties are in tokenizer.json."""
    return value["content"] if isinstance(value, dict) and "content" in value else value


def _config(tokenizer: Path) -> dict[str, Any]:
    """The tokenizer_config.json of a published tokenizer.json; empty if there is none that can be read."""
    if tokenizer.name != "tokenizer.json":
        return {}
    try:
        found = json.loads(read(tokenizer.parent / "tokenizer_config.json", _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _chat_template(config: dict[str, Any], folder: Path) -> str:
    """The text of all chat templates; empty if there is none."""
    texts = [json.dumps(config.get("chat_template", ""), ensure_ascii=False)]
    for name in _TEMPLATES:
        try:
            texts.append(read(folder / name, _MOST_BYTES).decode(errors="replace"))
        except (OSError, ValueError):
            continue
    return "\n".join(texts)
