"""`DataSpec`, the `data` part of a train spec. Checks what needs no file. Imports no torch."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from .spec_part import SpecPart

#: Fields of `DataSpec` that a source of the user's own does not have.
_OF_A_TEXT: Final = ("files", "field", "tokenizer", "documents", "seq_len", "validation")


class DataSpec(SpecPart):
    """The corpus, and how it is split into windows of `seq_len` tokens that predict the next token.

    A separator follows each document. Attention crosses from one document into the next, unless `documents` is `packed`. A source of
    your own has samples in the place of text, for a model given by `import`.
    """

    source: str = Field(
        "python-stdlib",
        max_length=1024,
        pattern=r"^(python-stdlib|text|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$",
        description="`python-stdlib` needs no download; `text` reads `files`; `module:factory` names a source of your own, in the folder "
        "`model.code`.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments for the factory of a source of your own."
    )
    files: list[str] = Field(
        default_factory=list,
        max_length=10_000,
        description="Files or globs for `text`; `.jsonl` and `.ndjson` need `field`.",
    )
    field: str | None = Field(None, description="Field of each JSONL record that holds the text.")
    tokenizer: str = Field("bytes", description="`bytes`, or the path of a tokenizer.json.")
    documents: Literal["joined", "packed"] = Field(
        "joined",
        description="`joined`: attention and the loss cross from one document into the next. `packed`: each document in a sequence is "
        "trained as if it stood alone: attention stays within it, its positions begin at 0, and its last token predicts nothing. An "
        "end-of-text token marks its end; with `tokenizer: bytes` the byte 0xFF, which no text has.",
    )
    seq_len: int = Field(256, ge=2, le=1_048_576, description="Tokens per sequence.")
    validation: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.05, description="Share of the corpus, from its end, that is held out for validation."
    )

    @model_validator(mode="after")
    def _files_match_source(self) -> "DataSpec":
        if self.source == "text" and not self.files:
            raise ValueError("source text needs files: a list of paths or globs")
        if self.source == "python-stdlib" and (self.files or self.field):
            raise ValueError("files and field belong to source text")
        if self.is_own:
            self._nothing_of_a_text()
        elif self.options:
            raise ValueError(
                "options belong to a source of your own: set source to its module:factory, or leave them out"
            )
        return self

    def _nothing_of_a_text(self) -> None:
        fields = type(self).model_fields
        given = [
            name for name in _OF_A_TEXT if getattr(self, name) != fields[name].get_default(call_default_factory=True)
        ]
        if given:
            raise ValueError(f"a source of your own has no text: leave out {', '.join(given)}")

    @property
    def is_own(self) -> bool:
        """Whether the samples come from a source of the user's own."""
        return ":" in self.source

    @property
    def is_packed(self) -> bool:
        """Whether the documents of a sequence are kept apart."""
        return self.documents == "packed"

    @property
    def tokens_per_sample(self) -> int:
        """Tokens of a sample. A sample of the user's own source counts as one token."""
        return 1 if self.is_own else self.seq_len
