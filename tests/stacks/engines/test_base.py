"""What is the same on every engine: a log that is followed while the engine is away now and then."""

from itertools import cycle
from pathlib import Path

import pytest

from stacks.engines.base import EngineAwayError, follow
from stacks.engines.local.engine import LocalQueue
from tests.stacks.engines.test_contract import job, limited


class _Blips(LocalQueue):
    """Every second question for a log has no answer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._answers = cycle((False, True))

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        if not next(self._answers):
            raise EngineAwayError("--on", "no answer")
        return super().log(job_id, offset)


@pytest.mark.parametrize("script", ["echo one; echo two", "echo one; sleep 0.5; echo two"])
def test_a_log_is_followed_through_blips(tmp_path: Path, script: str) -> None:
    queue = _Blips(tmp_path / "queue")
    job_id, pause = queue.submit(job(script)), limited()
    assert "".join(follow(queue, job_id, lambda: pause(queue.status(job_id)))) == "one\ntwo\n"
