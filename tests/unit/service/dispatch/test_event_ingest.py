import json

from hypothesis import given
from hypothesis import strategies as st

from shardyard.service.dispatch.event_ingest import storable

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=20,
)


@given(anything)
def test_whatever_is_reported_becomes_strict_json_without_nulls_in_text(value: object) -> None:
    text = json.dumps(storable(value), allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in text
    text.encode("utf-8")


def test_what_is_keepable_is_kept() -> None:
    value = {"a": [1, 2.5, None, True, "é 漢 🎉"], "b": {"c": "\n"}}
    assert storable(value) == value
