"""The runner: every check gets an answer, whatever happens to another; and quotas compared with needs."""

import threading

import pytest

from gangway.live.preflight.check import (
    Check,
    NoAnswerError,
    Result,
    State,
    compare_quota,
    conflicts,
    counts,
    in_order,
    run_checks,
)


def check(name: str, outcome: Result | Exception) -> Check:
    def run() -> Result:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return Check(name, "api:Call", run)


def test_a_failing_check_is_unknown_with_its_reason_and_hides_no_other() -> None:
    progress: list[int] = []
    answers = run_checks(
        [
            check("fine", Result.ok("yes")),
            check("refused", NoAnswerError("no permission for api:Call", "ask for it", "AccessDenied")),
            check("surprise", KeyError("Quota")),
            check("bad", Result.error("no", "do it")),
        ],
        progress.append,
    )
    assert [answer.result.state for answer in answers] == [State.OK, State.UNKNOWN, State.UNKNOWN, State.ERROR]
    assert (answers[1].result.answer, answers[1].result.fix) == ("no permission for api:Call", "ask for it")
    assert answers[2].result.answer == "KeyError: 'Quota'"
    assert [answer.check.subject for answer in in_order(answers)] == ["bad", "refused", "surprise", "fine"]
    assert counts(answers) == {"error": 1, "warning": 0, "unknown": 2, "ok": 1}
    assert progress == [1, 2, 3, 4]


def test_one_that_hangs_is_unknown_and_the_rest_is_shown() -> None:
    released = threading.Event()

    def hang() -> Result:
        released.wait()
        return Result.ok("late")

    many = [check(str(number), Result.ok("yes")) for number in range(30)]
    answers = run_checks([Check("hangs", "api:Call", hang), *many], patience_sec=0.5)
    released.set()
    assert answers[0].result.state is State.UNKNOWN
    assert "no answer within 0.5 s" in answers[0].result.answer
    assert {answer.result.state for answer in answers[1:]} == {State.OK}


def test_no_checks_have_no_answers() -> None:
    assert run_checks([]) == []


@pytest.mark.parametrize(
    ("amount", "limit", "used", "state", "words"),
    [
        (384, 768, 0, State.OK, "384 vCPUs needed, limit 768"),
        (384, 768, 384, State.OK, "384 in use"),
        (384, 768, 385, State.WARNING, "385 in use"),
        (384, 0, None, State.ERROR, "limit 0, what is in use is unknown"),
        (384, 384, None, State.OK, "unknown"),
    ],
)
def test_a_quota_is_enough_or_not(amount: float, limit: float, used: float | None, state: State, words: str) -> None:
    result = compare_quota(amount, limit, used, "vCPUs", "request more")
    assert result.state is state
    assert words in result.answer
    assert ("request more" in result.fix) == (state is not State.OK)


def test_conflicts_name_a_few() -> None:
    assert conflicts([], "why", "demo").state is State.OK
    found = conflicts([f"role-{number}" for number in range(7)], "why", "demo")
    assert found.state is State.WARNING
    assert found.answer == "role-0, role-1, role-2, role-3, role-4 and 2 more: why"
    assert "gangway audit demo" in found.fix


def test_texts_of_a_cloud_cannot_change_the_terminal() -> None:
    (answer,) = run_checks([check("image \x1b[31m\u202e", Result.error("name\x07", "fix \x9b0m"))])
    row = answer.to_json()
    assert (row["subject"], row["answer"], row["fix"]) == ("image \\x1b[31m\\u202e", "name\\x07", "fix \\x9b0m")
