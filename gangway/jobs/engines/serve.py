"""`gangway job serve`: answers for an engine of this machine to a Gangway that connects over SSH."""

from importlib.metadata import version
from typing import IO, Any

from pydantic import ValidationError

from gangway.components.core.findings import InputError
from gangway.jobs.base import Engine
from gangway.jobs.engines.registry import get_engine
from gangway.jobs.remote.submit_tokens import submit_once
from gangway.jobs.remote.wire import (
    ANSWER,
    ANSWERS,
    HELLO,
    PROTOCOL,
    QUESTION,
    Answer,
    Call,
    Hello,
    Question,
    Refusal,
)
from gangway.stacks.config.job_file import JobFile


def serve(questions: IO[str], answers: IO[str]) -> None:
    """Answers until the input ends."""

    def say(line: bytes) -> None:
        answers.write(line.decode() + "\n")
        answers.flush()

    say(HELLO.dump_json(Hello(PROTOCOL, version("gangway-iac"))))
    engines = dict[str, Engine]()
    for line in questions:
        say(ANSWER.dump_json(_answer(line, engines)))


def _answer(line: str, engines: dict[str, Engine]) -> Answer:
    try:
        question = QUESTION.validate_json(line)
        if question.on not in engines:
            engines[question.on] = get_engine(question.on)
        result = _call(engines[question.on], question)
        return Answer(result=ANSWERS[question.call].dump_json(result).decode())
    except ValidationError as error:
        return Answer(refusal=Refusal("gangway job serve", f"invalid request: {error}", line, "", "", is_away=False))
    except InputError as error:
        return Answer(refusal=Refusal.of(error))


def _call(engine: Engine, question: Question) -> Any:
    match question.call:
        case Call.FINDINGS:
            return list(engine.findings(JobFile.model_validate_json(question.job)))
        case Call.SUBMIT:
            job = JobFile.model_validate_json(question.job)
            return submit_once(question.token, lambda: engine.submit(job))
        case Call.STATUS:
            return engine.status(question.job_id)
        case Call.JOBS:
            return list(engine.jobs())
        case Call.LOG:
            return engine.log(question.job_id, question.offset)
        case Call.CANCEL:
            return engine.cancel(question.job_id)
        case Call.ROOM:
            return engine.room(JobFile.model_validate_json(question.job))
        case Call.ENSURE_BEGUN:
            return engine.ensure_begun(question.job_id)
