"""Converts text to token ids: plain UTF-8 bytes, or a Hugging Face `tokenizer.json`. Imports no torch.

The tokens of a text depend on the text and the tokenizer's content alone. A separator follows each document: a newline for bytes,
the tokenizer's own end-of-text token if it has one (`end_of_text.py`), else its tokens for a newline, if any. Packed documents need a
separator that no text contains: for bytes 0xFF, which does not occur in UTF-8, else the end-of-text token. Where that token's name
stands in a text, it is the token, as in Hugging Face's tokenizers: there a document ends, too.
"""

import hashlib
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...strategies.layout import Refusal
from ..regular_files import UnfitFile, read
from ..spec import DataSpec
from .end_of_text import END_OF_TEXT, end_of_text, usual_end
from .errors import DataError

Ids = NDArray[np.uint8] | NDArray[np.uint32]

#: Returns the digest that the tokenizer had in an earlier training, whose texts are to end as they did there; None: in none.
Trained = Callable[[], str | None]

#: The byte that ends packed documents, and the digests of both byte tokenizers.
END_BYTE: Final = 0xFF
BYTES: Final = "bytes"
ENDING_BYTES: Final = "bytes, documents end with 0xff"

#: Published tokenizers have up to 35 MB.
MOST_BYTES = 64 << 20


class Tokenizer(Protocol):
    """`vocab`: ids are below it. `digest`: hash of its content. `separator`: ids that follow each document.

    `end`: the id of its end-of-text token, None if it has none.
    """

    vocab: int
    digest: str
    separator: Ids
    end: int | None

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text. No special token is added; one whose name stands in a text becomes its id."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids. Bytes that are not UTF-8 become U+FFFD."""


class ByteTokenizer:
    """Each UTF-8 byte is a token; the vocabulary is 256. With `ends`, documents end with the byte 0xFF instead of a newline."""

    vocab = 256

    def __init__(self, ends: bool = False) -> None:
        self.end: int | None = END_BYTE if ends else None
        self.digest = ENDING_BYTES if ends else BYTES
        self.separator: Ids = np.frombuffer(bytes([END_BYTE]) if ends else b"\n", dtype=np.uint8)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        return [np.frombuffer(text.encode(), dtype=np.uint8) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


class FileTokenizer:
    """A `tokenizer.json`, or the one in a folder. Its settings for truncation, padding and dropout are switched off.

    `file`: its path. `end_name`: the name of its end-of-text token. `trained` is called only if that would not be the usual one, or if
    the file sets a dropout.
    """

    def __init__(self, path: Path, trained: Trained = lambda: None) -> None:
        self.file, content = _read(path)
        with _refused(path):
            names = self._take(content)
            had_dropout = self._without_dropout()
        self.end_name, self.digest = _end_and_digest(content, names, self.file, trained)
        if had_dropout and trained() != self.digest:  # earlier versions cached drawn tokens under this digest
            self.digest = hashlib.sha256(f"{self.digest} without dropout".encode()).hexdigest()
        self.end = None if self.end_name is None else names[self.end_name]
        with _refused(path):
            self.separator: Ids = self.encode(["\n"])[0] if self.end is None else np.array([self.end], dtype=np.uint32)

    def _take(self, content: bytes) -> dict[str, int]:
        """Load the content; returns the id of each token's name."""
        from tokenizers import Tokenizer as Loaded

        self._tokenizer = Loaded.from_buffer(content)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        ids = self._tokenizer.get_vocab(with_added_tokens=True)
        if not ids:
            raise ValueError("its vocabulary is empty")
        self.vocab = max(len(ids), 1 + max(ids.values()))
        return ids

    def _without_dropout(self) -> bool:
        """Switch off BPE dropout (1910.13267), which draws other tokens of a text each time; returns whether it was on."""
        if not getattr(self._tokenizer.model, "dropout", None):
            return False
        self._tokenizer.model.dropout = None
        return True

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))

    def id_of(self, name: str) -> int | None:
        """The id of the token of this name; None if there is none."""
        found: int | None = self._tokenizer.token_to_id(name)
        return found


def _end_and_digest(content: bytes, names: Container[str], file: Path, trained: Trained) -> tuple[str | None, str]:
    """The name of the token that ends a text, and the digest by which a training knows the tokenizer again.

    The digest is that of the content alone where texts end with the usual name, as all did in versions that read no other file.
    """
    usual, end, alone = usual_end(names), end_of_text(names, file), hashlib.sha256(content).hexdigest()
    if end is None or end == usual or trained() == alone:
        return usual, alone
    return end, hashlib.sha256(content + b"\0" + end.encode()).hexdigest()


def load_tokenizer(spec: DataSpec, trained: Trained = lambda: None) -> Tokenizer:
    """The tokenizer that `spec.tokenizer` names. Raises `DataError`, and what `trained` raises."""
    if spec.tokenizer == "bytes":
        return ByteTokenizer(spec.is_packed)
    return FileTokenizer(Path(spec.tokenizer).expanduser(), trained)


def document_end(spec: DataSpec, tokenizer: Tokenizer) -> int | None:
    """The id that ends a document, if documents are packed. Raises `Refusal` if the tokenizer has none."""
    if not spec.is_packed:
        return None
    if tokenizer.end is None:
        raise Refusal(
            "data.documents",
            f"{spec.tokenizer} has no end-of-text token, so nothing shows where a document ends.",
            "Put a tokenizer_config.json with its eos_token beside the tokenizer.json, or use a tokenizer that has one of "
            f"{', '.join(END_OF_TEXT)}, or set data.documents to joined.",
        )
    return tokenizer.end


def vocab_size(spec: DataSpec, own: int | None = None) -> int:
    """Number of token ids of `spec.tokenizer`; `own`, the model's, where the tokenizer cannot be read. Raises `DataError` without one."""
    try:
        return load_tokenizer(spec).vocab
    except DataError:
        if own is None:
            raise
        return own


def _read(path: Path) -> tuple[Path, bytes]:
    """The file that `path` names, and its content."""
    try:
        file = path / "tokenizer.json" if path.is_dir() else path
        return file, read(file, MOST_BYTES)
    except UnfitFile as error:
        raise DataError(error.code, error.message, "Name a tokenizer.json.", "data.tokenizer") from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise DataError(
            "missing_file",
            f"Tokenizer {path} cannot be read: {error}.",
            "Use tokenizer: bytes, or the path of a tokenizer.json.",
            "data.tokenizer",
        ) from error


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Turns every error of the tokenizers library into a `DataError`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # the library raises `Exception`; a panic of its Rust code is a `BaseException`
        raise DataError(
            "invalid_tokenizer",
            f"{path} is not a tokenizer.json: {error}.",
            "Save one with the tokenizers library: tokenizer.save(path).",
            "data.tokenizer",
        ) from error
