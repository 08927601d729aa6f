"""A call of a cloud's API, and what becomes of answers that are none."""

from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.systemd.scaling.base import Rest


class Answer:
    """A reply with a status and a text."""

    def __init__(self, status_code: int, text: str) -> None:
        self.status_code, self.text = status_code, text

    def json(self) -> Any:
        import json

        return json.loads(self.text)


class Cloud:
    """A session that has one answer, or none."""

    def __init__(self, answer: Answer | None) -> None:
        self.answer, self.asked = answer, list[tuple[str, str, Any, Any]]()

    def request(self, method: str, url: str, *, params: Any = None, json: Any = None, timeout: Any = None) -> Answer:
        self.asked.append((method, url, params, json))
        if self.answer is None:
            raise ConnectionError
        return self.answer


def test_an_answer_is_its_data() -> None:
    cloud = Cloud(Answer(200, '{"a": 1}'))
    assert Rest(cloud, "https://cloud.example.com", "log in").call("it", "GET", "/it", {"v": "1"}) == {"a": 1}
    assert cloud.asked == [("GET", "https://cloud.example.com/it", {"v": "1"}, None)]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "no answer: ConnectionError"),
        (Answer(404, "{}"), "does not exist"),
        (Answer(403, '{"error": "may not"}'), '403: {"error": "may not"}'),
        (Answer(200, "<html>"), "200: <html>"),
        (Answer(200, "[]"), "200: []"),
        (Answer(503, "x" * 9000), "503: xxx"),
    ],
)
def test_what_is_no_answer_is_told(answer: Answer | None, words: str) -> None:
    with pytest.raises(InputError) as told:
        Rest(Cloud(answer), "https://cloud.example.com", "log in").call("scale set a", "GET", "/it")
    assert told.value.place == "scale set a"
    assert words in str(told.value)
    assert told.value.fix
    assert len(str(told.value)) < 1000
