"""One token, one job: asked for twice, at once, after a refusal and after a kill."""

import os
import threading
import time
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.base import SubmitUnansweredError
from gangway.jobs.serve import submit_once

TOKEN = "0123456789abcdef" * 2


def never() -> str:
    raise AssertionError


def test_the_second_has_the_answer_of_the_first(tmp_path: Path) -> None:
    assert submit_once(TOKEN, lambda: "a-1", tmp_path / "taken") == "a-1"
    assert submit_once(TOKEN, never, tmp_path / "taken") == "a-1"
    assert submit_once(TOKEN[::-1], lambda: "a-2", tmp_path / "taken") == "a-2"


def test_one_that_asks_meanwhile_waits(tmp_path: Path) -> None:
    begun, end, found = threading.Event(), threading.Event(), list[str]()

    def slow() -> str:
        begun.set()
        assert end.wait(30)
        return "a-1"

    threads = [threading.Thread(target=lambda: found.append(submit_once(TOKEN, slow, tmp_path)))]
    threads[0].start()
    assert begun.wait(30)
    threads.append(threading.Thread(target=lambda: found.append(submit_once(TOKEN, never, tmp_path))))
    threads[1].start()
    end.set()
    for thread in threads:
        thread.join()
    assert found == ["a-1", "a-1"]


def test_what_was_refused_may_be_asked_again(tmp_path: Path) -> None:
    def refused() -> str:
        raise InputError("nodes", "too many")

    with pytest.raises(InputError, match="too many"):
        submit_once(TOKEN, refused, tmp_path)
    assert submit_once(TOKEN, lambda: "a-1", tmp_path) == "a-1"


def test_one_that_may_have_been_taken_is_not_taken_again(tmp_path: Path) -> None:
    def unanswered() -> str:
        raise SubmitUnansweredError("--on slurm", "no answer within 60 s")

    with pytest.raises(SubmitUnansweredError, match="no answer"):
        submit_once(TOKEN, unanswered, tmp_path)
    with pytest.raises(InputError, match="may have submitted the job"):
        submit_once(TOKEN, never, tmp_path)


def test_one_that_asks_while_another_is_refused_is_told_so_too(tmp_path: Path) -> None:
    begun, end, told = threading.Event(), threading.Event(), list[str]()

    def refused() -> str:
        begun.set()
        assert end.wait(30)
        raise InputError("nodes", "too many")

    def ask() -> None:
        with pytest.raises(InputError) as error:
            submit_once(TOKEN, refused, tmp_path)
        told.append(error.value.problem)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    threads[0].start()
    assert begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    until = time.monotonic() + 30
    while len([each for each in os.scandir("/proc/self/fd") if is_of(each.path, tmp_path / TOKEN)]) < 3:
        assert time.monotonic() < until
        time.sleep(0.01)
    end.set()
    for thread in threads:
        thread.join()
    assert told == ["too many"] * 3
    assert submit_once(TOKEN, lambda: "a-1", tmp_path) == "a-1"


def is_of(link: str, path: Path) -> bool:
    try:
        return Path(link).readlink() == path
    except OSError:
        return False


def test_of_one_that_was_killed_nobody_knows(tmp_path: Path) -> None:
    if (pid := os.fork()) == 0:
        submit_once(TOKEN, lambda: os._exit(0), tmp_path)
    os.waitpid(pid, 0)
    with pytest.raises(InputError, match="may have submitted the job") as unknown:
        submit_once(TOKEN, never, tmp_path)
    assert "job list" in unknown.value.fix


def test_old_ones_of_another_boot_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / TOKEN).write_text("another-boot 1.000\na-1\n")
    long_ago = time.time() - 2 * 86_400
    os.utime(tmp_path / TOKEN, (long_ago, long_ago))
    submit_once(TOKEN[::-1], lambda: "a-2", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN[::-1]]


@pytest.mark.parametrize("token", ["", "../../etc/passwd", TOKEN.upper()])
def test_what_is_no_token_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(InputError, match="not a submit token"):
        submit_once(token, never, tmp_path)
