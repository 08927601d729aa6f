"""`gangway job serve`: answers for an engine of this machine to a Gangway that connects over SSH. A repeated submit
runs only once, by a token that the caller chose, in case an answer is lost.

~/.gangway/taken/TOKEN    locked during the submit; holds its boot stamp, then the job's id
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import lock
from gangway.jobs import remote
from gangway.jobs.base import Engine, EngineAwayError, SubmitUnansweredError
from gangway.jobs.run_intervals import boot_stamp, sec_since
from gangway.jobs.sites import get_engine
from gangway.stacks.config.job_file import JobFile
from gangway.trainer.core.regular_files import read_regular

TOKEN = re.compile(r"[0-9a-f]{32}")
_FOLDER = Path("~/.gangway/taken")
_KEPT_SEC, _WAIT_SEC, _POLL_SEC = 86_400.0, 150.0, 0.1


def serve(questions: IO[str], answers: IO[str]) -> None:
    """Answers until the input ends."""

    def say(line: bytes) -> None:
        answers.write(line.decode() + "\n")
        answers.flush()

    say(remote.HELLO.dump_json(remote.Hello(remote.PROTOCOL, version("gangway-iac"))))
    engines = dict[str, Engine]()
    for line in questions:
        say(remote.ANSWER.dump_json(_answer(line, engines)))


def _answer(line: str, engines: dict[str, Engine]) -> remote.Answer:
    try:
        question = remote.QUESTION.validate_json(line)
        if question.on not in engines:
            engines[question.on] = get_engine(question.on)
        result = _call(engines[question.on], question)
        return remote.Answer(result=remote.ANSWERS[question.call].dump_json(result).decode())
    except ValidationError as error:
        return remote.Answer(
            refusal=remote.Refusal("gangway job serve", f"invalid request: {error}", line, "", "", is_away=False)
        )
    except InputError as error:
        return remote.Answer(refusal=remote.Refusal.of(error))


def _call(engine: Engine, question: remote.Question) -> Any:
    method = getattr(engine, question.call)  # one of the names that `Question` accepts
    match question.call:
        case "submit":
            job = JobFile.model_validate_json(question.job)
            return submit_once(question.token, lambda: engine.submit(job))
        case "findings":
            return list(method(JobFile.model_validate_json(question.job)))
        case "room":
            return method(JobFile.model_validate_json(question.job))
        case "jobs":
            return list(method())
        case "log":
            return method(question.job_id, question.offset)
    return method(question.job_id)


def submit_once(token: str, submit: Callable[[], str], folder: Path = _FOLDER) -> str:
    """The job's id, from this submit or an earlier one with that token. EngineAwayError: it still runs. InputError."""
    if not TOKEN.fullmatch(token):
        raise InputError("gangway job serve", "not a submit token", value=token, allowed="32 hexadecimal digits")
    folder = folder.expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _forget_old(folder)
        path = folder / token
        with _lock_token(path) as file:
            file.seek(0)
            before = file.read().splitlines()
            if len(before) == 1:
                raise InputError(
                    "submit", "an earlier attempt was interrupted there, and may have submitted the job",
                    allowed="one job", fix="check `gangway job list` before you submit it again",
                )  # fmt: skip
            if before:
                return before[-1]
            file.write(f"{boot_stamp()}\n")
            file.flush()
            try:
                job_id = submit()
            except SubmitUnansweredError:
                raise  # treated like a kill
            except BaseException:  # refused, so it may be repeated
                file.truncate(0)  # atomic, in case of a kill before the next line
                path.unlink(missing_ok=True)
                raise
            file.write(f"{job_id}\n")
            return job_id
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror}", fix="free some space there") from None


@contextmanager
def _lock_token(path: Path) -> Iterator[IO[str]]:
    """A refused submit removes the file that others wait for; they get a new one and their own refusal."""
    while True:
        with path.open("a+") as file:
            _wait_for_lock(file)
            if path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                yield file
                return


def _wait_for_lock(file: IO[str]) -> None:
    until = time.monotonic() + _WAIT_SEC
    while True:
        try:
            return lock(file)
        except BlockingIOError:
            if time.monotonic() > until:
                raise EngineAwayError(
                    "submit", "an earlier attempt is still running there", fix="wait, then check `gangway job list`"
                ) from None
            time.sleep(_POLL_SEC)


def _forget_old(folder: Path) -> None:
    for path in folder.iterdir():
        with suppress(OSError):
            began = sec_since(read_regular(folder, path.name).decode("utf-8", "replace").partition("\n")[0])
            # For another boot or machine, only the file's time is known.
            if (time.time() - path.stat().st_mtime if began is None else began) > _KEPT_SEC:
                path.unlink()
