"""Errors of a corpus, its tokenizer or a source of the user's own: one exception class with a stable code for each error."""


class DataError(ValueError):
    """`code` is stable, `message` describes what is wrong and where, `remedy` what to do; `field` is the spec's (dotted).

    Codes: missing_file, unreadable_file, not_a_file, file_too_large, too_many_files, too_slow, no_match, field_required, field_unused,
    invalid_utf8, invalid_jsonl, missing_field, not_text, empty_corpus, corpus_too_short, corpus_changed, invalid_tokenizer, cache_busy,
    cache_unwritable, source_unusable, source_failed.
    """

    def __init__(self, code: str, message: str, remedy: str, field: str = "data.files") -> None:
        super().__init__(f"{message} {remedy}")
        self.code = code
        self.message = message
        self.remedy = remedy
        self.field = field
