"""A stack that is a cluster with a queue: which settings go with it, and which ask for a job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.stacks.config.engine_settings import KubernetesConfig, SlurmConfig, SystemdConfig
from gangway.stacks.config.stack_config import StackConfig
from tests.stacks.config.test_own_command import mistakes

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def stack_file(repo: Path, tmp_path: Path) -> Callable[[Edit], Path]:
    """A shipped stack of one job, changed."""

    def write(edit: Edit) -> Path:
        values = yaml.safe_load((repo / "stacks" / "Pulumi.aws-p5-spot.yaml").read_text("utf-8"))["config"]
        edit(values)
        path = tmp_path / "Pulumi.shared.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return path

    return write


def parsed(repo: Path, **sections: Any) -> StackConfig:
    """A shipped stack as the model has it, without what providers say."""
    values = yaml.safe_load((repo / "stacks" / "Pulumi.aws-p5-spot.yaml").read_text("utf-8"))["config"]
    own = {key.removeprefix("gangway:"): value for key, value in values.items()} | sections
    return StackConfig.model_validate({"stack": "shared", **{name: v for name, v in own.items() if v is not None}})


def test_without_an_engine_units_run_the_one_job(repo: Path) -> None:
    for given in (None, {}, {"kind": "systemd"}):
        config = parsed(repo, engine=given)
        assert config.engine == SystemdConfig()
        assert config.work is config.job
        assert config.trains


@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
def test_a_queue_has_no_job_and_stands_for_a_month(repo: Path, kind: str) -> None:
    config = parsed(repo, job=None, engine={"kind": kind, "keep_runs": False})
    assert config.job is None
    assert (config.work.max_hours, config.work.keep_runs, config.work.terminate_when_done) == (730, False, False)
    assert not config.trains
    assert config.own_command is None
    assert isinstance(config.engine, SlurmConfig | KubernetesConfig)
    assert config.engine.queues == ["main"]


def test_no_node_has_to_be_up_where_there_is_a_queue(repo: Path) -> None:
    cluster = {"machine_type": "p5.48xlarge", "nodes": {"min": 0, "max": 4}, "capacity": [{"kind": "spot"}]}
    assert parsed(repo, job=None, engine={"kind": "slurm"}, cluster=cluster).cluster.nodes.min == 0


def test_teams_have_queues_of_their_own(repo: Path) -> None:
    teams = [{"name": "vision", "nodes": 3}, {"name": "speech", "nodes": 1}]
    config = parsed(repo, job=None, engine={"kind": "kubernetes", "teams": teams})
    assert isinstance(config.engine, KubernetesConfig)
    assert config.engine.queues == ["vision", "speech"]


TEAMS = [{"name": "vision", "nodes": 3}, {"name": "speech", "nodes": 2}]
MISTAKES: dict[str, tuple[Edit, str, str]] = {
    "no job": (lambda v: v.pop("gangway:job"), "gangway:job", "add job: {preset: dcgan-digits"),
    "an empty job": (lambda v: v.update({"gangway:job": {}}), "gangway:job", "add job: {preset: dcgan-digits"),
    "no nodes": (
        lambda v: v["gangway:cluster"].update(nodes={"min": 0, "max": 2}), "gangway:cluster.nodes.min", "write min: 1",
    ),
    "a queue and a job": (
        lambda v: v.update({"gangway:engine": {"kind": "slurm"}}), "gangway:job", "leave gangway:job out",
    ),
    "no such engine": (
        lambda v: v.update({"gangway:engine": {"kind": "slrum"}}), "gangway:engine.kind", "did you mean 'slurm'?",
    ),
    "no kind": (lambda v: v.update({"gangway:engine": {"idle_minutes": 5}}), "gangway:engine.kind", "add kind:"),
    "another engine's key": (
        lambda v: (v.pop("gangway:job"), v.update({"gangway:engine": {"kind": "kubernetes", "accounting": True}})),
        "gangway:engine.accounting", "only kind: slurm has it",
    ),
    "another engine's key of a team": (
        lambda v: (
            v.pop("gangway:job"),
            v.update({"gangway:engine": {"kind": "kubernetes", "teams": [{**TEAMS[0], "users": {"ann": 20001}}]}}),
        ),
        "gangway:engine.teams[0].users", "leave it out: only engine.kind: slurm has it",
    ),
    "more promised than there is": (
        lambda v: (v.pop("gangway:job"), v.update({"gangway:engine": {"kind": "kubernetes", "teams": TEAMS}})),
        "gangway:cluster.nodes.max", "write max: 5, or guarantee fewer nodes",
    ),
    "a team that may have more than there is": (
        lambda v: (
            v.pop("gangway:job"),
            v.update({"gangway:engine": {"kind": "kubernetes", "teams": [{**TEAMS[0], "nodes": 1, "max_nodes": 9}]}}),
        ),
        "gangway:cluster.nodes.max", "or a smaller max_nodes",
    ),
    "a limit below the promise": (
        lambda v: (
            v.pop("gangway:job"),
            v.update({"gangway:engine": {"kind": "kubernetes", "teams": [{**TEAMS[0], "nodes": 2, "max_nodes": 1}]}}),
        ),
        "gangway:engine.teams[0]", "write max_nodes: 2 or more",
    ),
    "a team twice": (
        lambda v: (
            v.pop("gangway:job"),
            v.update({"gangway:engine": {"kind": "kubernetes", "teams": [TEAMS[0], TEAMS[0]]}}),
        ),
        "gangway:engine", "remove one of the entries for vision",
    ),
    "quotas that nobody keeps": (
        lambda v: (v.pop("gangway:job"), v.update({"gangway:engine": {"kind": "slurm", "teams": TEAMS[:1]}})),
        "gangway:engine.accounting", "add accounting: true",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_with_its_place_and_its_fix(stack_file: Callable[[Edit], Path], case: str) -> None:
    edit, place, fix = MISTAKES[case]
    found = {one.place.partition(": ")[2]: one for one in mistakes(stack_file(edit))}
    assert place in found, found
    assert fix in found[place].fix


def users_of(*teams: dict[str, Any]) -> Edit:
    named = [{"name": f"team{number}", "nodes": 1, "users": users} for number, users in enumerate(teams)]
    engine = {"kind": "slurm", "accounting": True, "teams": named}
    return lambda values: (values.pop("gangway:job"), values.update({"gangway:engine": engine}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("teams", "place", "problem"),
    [
        ([{"root": 20001}], "teams[0].users", "root"),
        ([{"sudo": 20001}], "teams[0].users", "sudo"),
        ([{"docker": 20001}], "teams[0].users", "docker"),
        ([{"Ann": 20001}], "teams[0].users", "rename 'Ann'"),
        ([{"ann; reboot": 20001}], "teams[0].users", "rename 'ann; reboot'"),
        ([{"ann:0": 20001}], "teams[0].users", "rename 'ann:0'"),
        ([{"a" * 32: 20001}], "teams[0].users", "at most 31"),
        ([{"ann": 0}], "teams[0].users", "ann has 0"),
        ([{"ann": 10001}], "teams[0].users", "ann has 10001"),
        ([{"ann": 65534}], "teams[0].users", "ann has 65534"),
        ([{"ann": 20001, "bob": 20001}], "teams[0].users", "different UID for each user"),
        ([{"ann": 20001}, {"ann": 20002}], "", "ann has 20001 and 20002"),
        ([{"ann": 20001}, {"bob": 20001}], "", "ann and bob have 20001"),
        ([{"ann": True}], "teams[0].users", ""),
        ([["ann"]], "teams[0].users", ""),
    ],
)
def test_users_that_cannot_be_are_refused_with_their_place(
    stack_file: Callable[[Edit], Path], teams: list[Any], place: str, problem: str
) -> None:
    found = mistakes(stack_file(users_of(*teams)))
    (one,) = [each for each in found if "gangway:engine" in each.place]
    assert one.place.partition(": ")[2].startswith(f"gangway:engine{place and f'.{place}'}"), one
    assert problem in str(one), one
    assert one.fix


def test_a_user_may_be_in_several_teams_and_kubernetes_has_none(stack_file: Callable[[Edit], Path]) -> None:
    assert mistakes(stack_file(users_of({"ann": 20001, "bob": 20002}, {"ann": 20001}))) == []

    def edit(values: dict[str, Any]) -> None:
        users_of({"ann": 20001})(values)
        values["gangway:engine"] = {"kind": "kubernetes", "teams": values["gangway:engine"]["teams"]}

    assert any(each.place.endswith("teams[0].users") for each in mistakes(stack_file(edit)))


def test_a_provider_without_such_clusters_says_where_there_are_some(stack_file: Callable[[Edit], Path]) -> None:
    def edit(values: dict[str, Any]) -> None:
        del values["gangway:job"]
        values["gangway:engine"] = {"kind": "slurm"}
        values["gangway:provider"] = "azure"

    (found,) = [one for one in mistakes(stack_file(edit)) if one.place.endswith("gangway:engine.kind")]
    assert "provider: azure has no such cluster" in found.problem
    assert "gangway job submit FILE --on slurm:" in found.fix


def test_what_a_queue_has_no_use_for_is_told(stack_file: Callable[[Edit], Path]) -> None:
    def edit(values: dict[str, Any]) -> None:
        del values["gangway:job"]
        values["gangway:engine"] = {"kind": "kubernetes"}
        values["gangway:cluster"]["fabric_check"] = {"min_fraction": 0.5}
        values["gangway:cluster"]["breaker"] = {"given_up": 5}
        values["gangway:cluster"]["idle_stop"] = {"minutes": 30}
        values["gangway:head"] = {"machine_type": "t3.large"}

    places = {one.place.partition(": ")[2]: one for one in mistakes(stack_file(edit))}
    assert {"gangway:cluster.breaker", "gangway:cluster.idle_stop", "gangway:head"} <= places.keys()
    assert "gangway:cluster.fabric_check" not in places, "presets of its jobs have to reach it"
    assert "of no effect with engine: kubernetes" in places["gangway:head"].problem


@pytest.mark.parametrize("written", ["0.0.0.0/0", "203.0.113.7", "anywhere", "2001:db8::/32"])
def test_nobody_lets_everybody_talk_to_a_cluster(stack_file: Callable[[Edit], Path], written: str) -> None:
    def edit(values: dict[str, Any]) -> None:
        values.pop("gangway:job")
        values["gangway:engine"] = {"kind": "kubernetes", "api_cidrs": [written]}

    if written == "203.0.113.7":  # one address is a range
        assert mistakes(stack_file(edit)) == []
        return
    [mistake] = mistakes(stack_file(edit))
    assert mistake.place.endswith("gangway:engine.api_cidrs[0]")
    assert mistake.fix
