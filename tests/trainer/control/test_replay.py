"""A recorded run shown to policies: its own policy decides the same again, others beside it, and none is followed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from gangway.trainer.__main__ import main
from gangway.trainer.config.values.control import JUDGE, Bounds, ControlSettings, PolicyName
from gangway.trainer.control.controller import Controller
from gangway.trainer.control.guardrails import Machine
from gangway.trainer.control.interval import Decision, Interval, Knobs
from gangway.trainer.control.replay import UNKNOWN, Recorded, recorded, shown
from gangway.trainer.control.watch import fatal_changes, get_history
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import World
from tests.trainer.control.closed_loop import Loop, Plant
from tests.trainer.control.rooms import line

POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)
BOUNDS = Bounds(batch_size=(16, 256))
START = Knobs(batch_size=64, threads=2)
MACHINE = Machine(cores=4)


def trained(settings: ControlSettings, seed: int = 3) -> list[Interval]:
    """Waits for images at first, and gets a neighbour."""
    plant = Plant(read_sec=0.006, compute_sec=0.002, neighbour=lambda passed: 2.0 * (passed > 0.5), noise_scale=40.0)
    return list(Loop(plant, START, settings, intervals=20, seed=seed).run().history)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_shown_to_its_own_policy_is_decided_the_same_again(policy: PolicyName) -> None:
    settings = ControlSettings(policy=policy, bounds=BOUNDS)
    history = trained(settings)
    found = shown(history, settings, Recorded(settings, MACHINE, seed=3))
    assert found.same == len(history)
    own, all_own = found.agreed
    assert (
        own
        == all_own
        == len(found.wanted)
        == sum(each.decision is not None and each.decision.policy != JUDGE for each in history)
    )
    assert bool(all_own) == (policy != "fixed")


@pytest.mark.parametrize("policy", POLICIES)
def test_another_policy_is_asked_and_never_followed(policy: PolicyName) -> None:
    history = trained(ControlSettings(bounds=BOUNDS))
    found = shown(history, ControlSettings(policy=policy, mode="observe", bounds=BOUNDS))
    assert [row.did for row in found.rows] == [each.decision for each in history], "the run stays what it was"
    assert {row.would.policy for row in found.rows if row.would is not None} <= {policy, JUDGE}


def test_what_is_wanted_again_and_again_is_counted_once() -> None:
    history = trained(ControlSettings(policy="fixed"))
    found = shown(history, ControlSettings(policy="rules"))
    asked = [row.would for row in found.rows if row.would is not None]
    assert len(asked) > len(found.wanted) > 0
    assert len(list(found.sentences())) == len(found.wanted)
    assert found.agreed == (0, 0)
    assert found.same == len(history) - len(asked)


def controller(**settings: Any) -> dict[str, Any]:
    whole = ControlSettings(**settings).model_dump(mode="json")
    told = {"settings": whole, "machine": MACHINE._replace(fixed=("threads",))._asdict(), "seed": 7}
    return {"event": "controller", "time": 1.8e9, "images": 0, "session": 0, **told}


def test_a_log_says_what_the_run_was_asked_for() -> None:
    lines = [controller(policy="model", bounds=BOUNDS), line(0, 0), controller(policy="learned")]
    own = recorded(json.loads(json.dumps(lines)), "stats.jsonl")
    assert own == Recorded(ControlSettings(policy="model", bounds=BOUNDS), MACHINE._replace(fixed=("threads",)), 7), (
        "the newest with a line of statistics"
    )
    assert recorded([line(0, 0)], "stats.jsonl") is None
    odd = controller()
    odd["settings"]["policy"] = "crystal-ball"
    with pytest.raises(TrainerError, match=r"stats\.jsonl: controller.*policy"):
        recorded([odd, line(0, 0)], "stats.jsonl")


Log = list[dict[str, Any]]


def live(log: Log, session: int, settings: ControlSettings, folder: Path, until_decided: bool) -> Log:
    """What a session with a controller appends, which waits for images all the time and has its changes done; it may
    die with the first.
    """

    def event(name: str, images: int, **more: Any) -> None:
        log.append({"event": name, "time": 1.8e9, "images": images, "session": session, **more})

    first = max((each["images"] for each in log), default=0)
    event("resume" if session else "start", first)
    fatal = fatal_changes(log, settings.interval_sec)
    machine = MACHINE._replace(fatal=tuple(each.limit for each in fatal))
    asked = {"settings": settings.model_dump(mode="json"), "machine": machine._asdict(), "seed": 3}
    event("controller", first, **asked)
    history = get_history(log, settings.interval_sec, failed=[(each.session, each.images) for each in fatal])
    world = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "")
    start = Knobs(batch_size=32, loader_threads=1)
    controller = Controller(settings, world, machine, start, 3, folder, history, event, lambda _: None)
    knobs = history[-1].after if history else start
    for place in range(20):
        now = {"knobs": knobs._asdict(), "cores": 4, "session": session, "cpu_utilisation": 0.1 + place / 100}
        log.append(line(6.0 * place, first + 100 + 600 * place, loader_stall_sec=3.0 * place, **now))
        decision = controller.after(log[-1])
        if decision is not None:
            controller.done(decision, log[-1]["images"])
            knobs = knobs.with_value(decision.knob, decision.value)
            if until_decided:
                break
    return log


@pytest.mark.parametrize("policy", ["rules", "model", "learned"])
def test_a_run_with_a_change_that_no_session_has_outlived_is_decided_the_same_again(
    policy: PolicyName, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ControlSettings(policy=policy, interval_sec=5.0, bounds=BOUNDS)
    log = live(live([], 0, settings, tmp_path, until_decided=True), 1, settings, tmp_path, until_decided=False)
    log = json.loads(json.dumps(log))
    own = recorded(log, "stats.jsonl")
    assert own is not None
    (ended,) = own.fatal
    found = shown(get_history(log, 5.0, failed=[(ended.session, ended.images)]), settings, own)
    assert ended.decision in [row.did for row in found.rows]
    assert found.same == len(found.rows) > 15
    own_changes, all_own = found.agreed
    assert own_changes == all_own >= 1
    (tmp_path / "stats.jsonl").write_text("".join(json.dumps(each) + "\n" for each in log))
    assert main(["control", "replay", "--run-dir", str(tmp_path), "--policy", policy, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["policies"][policy]
    assert (told["intervals_as_the_run"], told["own_changes_agreed"]) == (found.same, own_changes)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    decided = Decision("loader_threads", 2, 1, "rules", "it waits", 0.2, "")._asdict()
    lines = [controller(interval_sec=5.0)]
    for place in range(8):
        knobs = {"knobs": Knobs(batch_size=32, loader_threads=1 + (place > 4))._asdict(), "cores": 4}
        lines.append(line(6.0 * place, 600 * place, loader_stall_sec=3.0 * place, cpu_utilisation=place / 20, **knobs))
        if place == 4:
            event = {"event": "decision", "time": 1.8e9, "images": 600 * place, "session": 0, "outcome": "done"}
            lines.append({**event, **decided})
    (tmp_path / "stats.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    return tmp_path


Replay = Callable[..., str]


@pytest.fixture
def replay(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> Replay:
    def call(*flags: str) -> str:
        assert main(["control", "replay", "--run-dir", str(run_dir), *flags]) == 0
        return capsys.readouterr().out

    return call


def test_one_call_answers_for_every_policy_side_by_side(replay: Replay) -> None:
    text = replay()
    head, *rows = text.splitlines()[1:6]
    assert head.split()[:2] == ["policy", "changes"]
    assert [row.split()[0] for row in rows] == list(POLICIES)
    assert "7 intervals of 5 s, under rules, act" in text
    assert text.rstrip().endswith(UNKNOWN)
    assert replay("--policy", "all") == replay("--policy", "rules", "--policy", "all") == text
    alone = replay("--policy", "fixed")
    assert "(the run itself: loader_threads 1 to 2, by rules)" in alone
    assert "0 of 1" in alone


def test_programs_get_the_same(replay: Replay) -> None:
    found = json.loads(replay("--json", "--objective", "time"))
    assert list(found["policies"]) == list(POLICIES)
    assert found["settings"]["interval_sec"] == 5.0
    assert found["unknown"] == UNKNOWN
    for name, each in found["policies"].items():
        assert each["intervals"] == len(each["rows"]) == 7
        assert each["own_changes"] == 1
        assert (each["changes"] == 0) == (name == "fixed")
    assert any(row["would"] for row in found["policies"]["rules"]["rows"])


def test_what_cannot_be_shown_is_refused(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, place in (
        (["--control", '{"interval_sec": 3600}'], "has no interval of 3600 s"),
        (["--policy", "rulez"], "--policy"),
    ):
        assert main(["control", "replay", "--run-dir", str(run_dir), *flags]) == 2
        assert place in capsys.readouterr().err
