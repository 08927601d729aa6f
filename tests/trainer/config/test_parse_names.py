"""Names by commas: each one known and only once, and a wrong one told with the nearest."""

import pytest
from pydantic_core import PydanticCustomError

from gangway.trainer.config.values.metric_names import parse_names

KNOWN = ("cat", "dog")


def test_names_are_taken_apart() -> None:
    assert parse_names("none", KNOWN) == ()
    assert parse_names("dog", KNOWN) == ("dog",)
    assert parse_names("dog, cat", KNOWN) == ("dog", "cat")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dog,cot", {"allowed": "cat, dog, by commas; or none", "value": "cot", "fix": "did you mean 'cat'?"}),
        ("xyz", {"allowed": "cat, dog, by commas; or none", "value": "xyz"}),
        ("", {"allowed": "cat, dog, by commas; or none"}),
        ("none, cat", {"allowed": "names, or none alone", "value": "none, cat", "fix": "leave none out"}),
        ("cat,dog,cat", {"allowed": "each name at most once", "fix": "leave the second cat out"}),
    ],
)
def test_what_is_no_such_list_is_refused(text: str, told: dict[str, str]) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        parse_names(text, KNOWN)
    assert caught.value.context == told
