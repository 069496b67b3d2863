"""Where specs differ."""

from shardyard.api.cli.commands.compare import differences


def test_only_what_differs_is_reported_by_its_dotted_field() -> None:
    one = {"name": "a", "train": {"steps": 5, "layout": {"data": 2, "tensor": 1}, "files": ["x"]}}
    two = {"name": "a", "train": {"steps": 5, "layout": {"data": 1, "tensor": 2}, "files": ["x", "y"]}, "labels": {}}
    assert differences([one, two]) == {
        "train.layout.data": [2, 1],
        "train.layout.tensor": [1, 2],
        "train.files": [["x"], ["x", "y"]],
        "labels": [None, {}],
    }


def test_equal_specs_differ_nowhere() -> None:
    assert differences([{"a": {"b": 1}}] * 3) == {}
