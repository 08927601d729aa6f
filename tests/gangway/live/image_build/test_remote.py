"""How a remote build is followed, whichever service runs it."""

from collections.abc import Sequence

import pytest

from gangway.components.core.findings import InputError
from gangway.live.image_build import remote
from gangway.live.image_build.remote import BuildState, GrowingLog, run_build
from tests.gangway.live.image_build.conftest import DIGEST


class Build:
    """Gives its states one after the other, then the last again."""

    service = "Builds"

    def __init__(self, *states: BuildState, registry: str | None = DIGEST) -> None:
        self.states, self.registry, self.was_cancelled = list(states), registry, False

    def start(self, timeout_sec: int) -> str:
        return "b-1"

    def state(self) -> BuildState:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def log_lines(self, *, at_end: bool) -> Sequence[str]:
        return ["last"] if at_end else ["line"]

    def cancel(self) -> None:
        self.was_cancelled = True

    def registry_digest(self, digest: str) -> str | None:
        return self.registry


WORKING, DONE = BuildState("WORKING"), BuildState("SUCCESS", "succeeded", DIGEST)


@pytest.fixture
def told() -> list[str]:
    return []


def test_its_log_and_phases_are_shown(told: list[str]) -> None:
    assert run_build(Build(WORKING, WORKING, DONE), 60, told.append, lambda _: None) == DIGEST
    assert told[:4] == ["Builds build b-1 started", "line", "[working]", "line"]
    assert told[4] == "last"
    assert "succeeded after" in told[-1]


def test_a_failed_build_gives_the_services_reason(told: list[str]) -> None:
    build = Build(BuildState("FAILURE", "failed", reason="no space"))
    with pytest.raises(InputError, match="ended as FAILURE: no space"):
        run_build(build, 60, told.append, lambda _: None)
    assert not build.was_cancelled


def test_ctrl_c_cancels_it(told: list[str]) -> None:
    build = Build(WORKING)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_build(build, 60, told.append, interrupt)
    assert build.was_cancelled
    assert told[-1] == "cancelling build b-1"


def test_a_refused_cancellation_does_not_hide_the_reason(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise InputError("b-1", "no permission")

    monkeypatch.setattr(remote, "GRACE_SEC", -61.0)
    build = Build(WORKING)
    monkeypatch.setattr(build, "cancel", refuse)
    with pytest.raises(InputError, match="time limit"):
        run_build(build, 60, told.append, lambda _: None)
    assert "may still run and cost money" in told[-1]


def test_after_its_time_limit_it_is_cancelled(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "GRACE_SEC", -61.0)
    build = Build(WORKING)
    with pytest.raises(InputError, match="did not end within its time limit"):
        run_build(build, 60, told.append, lambda _: None)
    assert build.was_cancelled


@pytest.mark.parametrize("registry", [None, f"sha256:{'f' * 64}"])
def test_the_registry_has_the_last_word(registry: str | None, told: list[str]) -> None:
    with pytest.raises(InputError, match="the registry has another digest"):
        run_build(Build(DONE, registry=registry), 60, told.append, lambda _: None)


def test_a_growing_log_gives_each_line_once_and_whole() -> None:
    text = b"one\ntw"
    log = GrowingLog(lambda offset: text[offset:])
    assert log.lines(at_end=False) == ["one"]
    text = b"one\ntwo\nthree"
    assert log.lines(at_end=False) == ["two"]
    assert log.lines(at_end=True) == ["three"]
    assert log.lines(at_end=True) == []
