"""A start that is cut short anywhere has left nothing, and one that cannot be undone says so."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.findings import InputError
from gangway.components.gcp.gke_pools import team_fabric
from gangway.jobs.base import EngineAwayError, Phase
from gangway.jobs.kubernetes.kubectl import ForbiddenError, Kubectl, MissingError, TakenError
from gangway.jobs.kubernetes.objects import (
    SETS,
    JobObjects,
    clear_old,
    clear_orphans,
    clear_stale,
    create_start,
    may_be_old,
)
from gangway.jobs.kubernetes.status import get_status
from tests.gangway.jobs.kubernetes.test_manifests import PLACING, job, preset
from tests.gangway.jobs.kubernetes.test_status import a_set, a_workload, cancelled

_KINDS = {
    SETS: "JobSet",
    "secrets": "Secret",
    "configmaps": "ConfigMap",
    "networkpolicies.networking.k8s.io": "NetworkPolicy",
}
_CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _nothing(step: str) -> None:
    """No step goes wrong."""


@dataclass(frozen=True)
class Cluster(Kubectl):
    """Objects by kind and name. `before` and `after` each step, `create JobSet` say, something may go wrong."""

    context: str = ""
    namespace: str = "team-a"
    there: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    before: Callable[[str], None] = _nothing
    after: Callable[[str], None] = _nothing

    def get(self, kind: str, *words: str) -> Any:
        self.before(f"get {_KINDS[kind]}")
        if words[0].startswith("--selector="):
            return [found for (known, _), found in self.there.items() if known == _KINDS[kind]]
        if (found := self.there.get((_KINDS[kind], words[0]))) is None:
            raise MissingError("", "there is none")
        return found

    def create(self, manifest: Mapping[str, Any]) -> Any:
        key = (manifest["kind"], manifest["metadata"]["name"])
        self.before(f"create {key[0]}")
        if key in self.there:
            raise TakenError("", "there is one")
        self.there[key] = json.loads(json.dumps(manifest))
        self.there[key]["metadata"] |= {"uid": f"uid of {key}", "creationTimestamp": "2026-01-02T03:04:05Z"}
        self.after(f"create {key[0]}")
        return self.there[key]

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        self.before(f"patch {_KINDS[kind]}")
        self.there[_KINDS[kind], name]["metadata"] |= change["metadata"]

    def run(self, *words: str, stdin: str | None = None) -> str:
        assert words[0] == "delete", words
        self.before("delete")
        self.there.pop((_KINDS[words[1]], words[2]), None)
        return ""


def fails(*steps: str, error: BaseException) -> Callable[[str], None]:
    def look(step: str) -> None:
        if step in steps:
            raise error

    return look


_STEPS = [
    *(("before", f"create {kind}") for kind in _KINDS.values()),
    *(("after", f"create {kind}") for kind in _KINDS.values()),
    *(("before", f"patch {kind}") for kind in ("ConfigMap", "Secret", "NetworkPolicy")),
]


@pytest.mark.parametrize("error", [EngineAwayError("", "no answer"), ForbiddenError("", "no"), KeyboardInterrupt()])
@pytest.mark.parametrize(("when", "step"), _STEPS)
def test_one_that_is_cut_short_has_left_nothing_that_could_begin(when: str, step: str, error: BaseException) -> None:
    look = fails(step, error=error)
    cluster = Cluster(before=look) if when == "before" else Cluster(after=look)
    with pytest.raises(type(error)):
        create_start(cluster, job(), PLACING, {})
    assert cluster.there == {}


def test_all_that_is_there_goes_with_its_job() -> None:
    cluster = Cluster()
    create_start(cluster, job(), PLACING, {})
    owners = {kind: found["metadata"].get("ownerReferences") for (kind, _), found in cluster.there.items()}
    assert owners.pop("JobSet") is None
    assert [each[0]["kind"] for each in owners.values() if each is not None] == ["JobSet"] * 3


@pytest.mark.attack("a user of the same cluster", "reads the key of another's queued job")
def test_each_start_of_a_preset_has_a_key_of_its_own_and_what_else_was_there() -> None:
    cluster, keys = Cluster(), []
    before = {"HOME": "/tmp"}
    for placing in (PLACING, PLACING.without(["n1"], 600)):
        create_start(cluster, preset(), placing, before)
        before = cluster.there["Secret", placing.name]["stringData"]
        assert "PRIVATE KEY" not in str([found for (kind, _), found in cluster.there.items() if kind != "Secret"])
        keys.append(before["member.pem"])
    assert before["HOME"] == "/tmp"
    assert len(set(keys)) == 2


def test_what_is_somebody_elses_stays() -> None:
    foreign = {"metadata": {"name": PLACING.name}}
    taken = Cluster(there={("JobSet", PLACING.name): foreign})
    with pytest.raises(TakenError):
        create_start(taken, job(), PLACING, {})
    away = Cluster(
        there={("JobSet", PLACING.name): foreign}, before=fails("create JobSet", error=EngineAwayError("", "no answer"))
    )
    with pytest.raises(EngineAwayError):
        create_start(away, job(), PLACING, {})
    assert taken.there == away.there == {("JobSet", PLACING.name): foreign}
    secret = Cluster(there={("Secret", PLACING.name): foreign})
    with pytest.raises(TakenError):
        create_start(secret, job(), PLACING, {})
    assert secret.there == {("Secret", PLACING.name): foreign}


def test_of_two_that_ask_for_one_name_who_is_cut_short_leaves_the_others() -> None:
    other = Cluster()
    create_start(other, job(), PLACING, {})
    whole = dict(other.there)
    cut = Cluster(there=other.there, before=fails("create ConfigMap", error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        create_start(cut, job(), PLACING, {})
    assert other.there == whole


def test_where_the_first_create_gets_no_answer_another_engine_may_have_the_job() -> None:
    away = fails("create ConfigMap", "get ConfigMap", error=EngineAwayError("", "no answer"))
    with pytest.raises(EngineAwayError):
        create_start(Cluster(before=away), job(), PLACING, {})


def test_what_may_have_begun_all_the_same_is_said() -> None:
    lost, away = EngineAwayError("", "no answer"), fails("get JobSet", "delete", error=EngineAwayError("", "gone"))
    cluster = Cluster(after=fails("create JobSet", error=lost), before=away)
    with pytest.raises(InputError, match="may still start") as caught:
        create_start(cluster, job(), PLACING, {})
    assert not isinstance(caught.value, EngineAwayError), "another engine is not to have it too"
    assert caught.value.value == PLACING.job_id


def test_what_a_start_has_left_that_was_cut_off_goes_when_nobody_is_at_work_on_it() -> None:
    cluster = Cluster()
    create_start(cluster, job(), PLACING, {})
    whole = dict(cluster.there)
    clear_stale(cluster, PLACING.name)
    assert cluster.there == whole
    del cluster.there["JobSet", PLACING.name]
    old = cluster.there["ConfigMap", PLACING.name]
    young = {**old, "metadata": {**old["metadata"], "creationTimestamp": "2999-01-02T03:04:05Z"}}
    cluster.there["ConfigMap", PLACING.name] = young
    clear_stale(cluster, PLACING.name)
    assert len(cluster.there) == 3
    cluster.there["ConfigMap", PLACING.name] = old
    clear_stale(cluster, PLACING.name)
    assert cluster.there == {}


def test_of_a_start_that_was_cut_off_nothing_goes_that_no_start_has_made() -> None:
    foreign = {"metadata": {"name": PLACING.name, "creationTimestamp": "2026-01-02T03:04:05Z"}}
    cluster = Cluster(there={("ConfigMap", PLACING.name): foreign})
    clear_stale(cluster, PLACING.name)
    assert cluster.there == {("ConfigMap", PLACING.name): foreign}


@pytest.mark.parametrize(("days", "stays"), [(6.9, True), (7.1, False)])
def test_a_cancelled_job_can_be_asked_for_seven_days(days: float, stays: bool) -> None:
    cluster = Cluster()
    create_start(cluster, job(), PLACING, {})
    seen = JobObjects([cancelled()], a_workload(active=False), [], [])
    status = get_status(seen, 3)
    assert status.phase is Phase.CANCELLED
    assert status.ended_at is not None
    now = status.ended_at + timedelta(days=days)
    assert may_be_old(cancelled(), now) is not stays
    clear_old(cluster, seen, status, now)
    assert (("JobSet", PLACING.name) in cluster.there) is stays


def test_a_job_that_waits_is_never_too_old() -> None:
    cluster = Cluster()
    create_start(cluster, job(), PLACING, {})
    seen = JobObjects([a_set()], a_workload(), [], [])
    clear_old(cluster, seen, get_status(seen, 3), _CREATED + timedelta(days=700))
    assert len(cluster.there) == 4


def test_what_a_submit_has_left_that_was_cut_off_goes_when_it_is_old() -> None:
    cluster = Cluster()
    create_start(cluster, job(), PLACING, {})
    other = replace(PLACING, job_id="mine-4")
    create_start(cluster, job(), other, {})
    for kind in ("ConfigMap", "Secret", "NetworkPolicy"):
        del cluster.there[kind, other.name]["metadata"]["ownerReferences"]
    sets = [cluster.there["JobSet", each.name] for each in (PLACING, other)]
    clear_orphans(cluster, sets, _CREATED + timedelta(days=8))
    assert len(cluster.there) == 8, "each belongs to a set"
    del cluster.there["JobSet", other.name]
    clear_orphans(cluster, sets[:1], _CREATED + timedelta(days=6))
    assert len(cluster.there) == 7, "somebody may be at work on it"
    clear_orphans(cluster, sets[:1], _CREATED + timedelta(days=8))
    assert {name for _, name in cluster.there} == {PLACING.name}


def test_what_a_team_has_of_its_cluster_stays_however_old_it_is() -> None:
    machine = load_provider("gcp").machine("a3-ultragpu-8g", "machine_type")
    assert isinstance(machine, GcpMachineType)
    cluster = Cluster()
    for each in team_fabric("team-a", machine, None):
        cluster.create(each)
    before = dict(cluster.there)
    assert any(kind == "ConfigMap" for kind, _ in before)
    clear_orphans(cluster, [], _CREATED + timedelta(days=8))
    assert cluster.there == before


def test_what_has_the_name_of_a_submit_that_was_cut_off_and_is_somebody_elses_stays() -> None:
    cluster = Cluster()
    create_start(cluster, job(), PLACING, {})
    del cluster.there["ConfigMap", PLACING.name]["metadata"]["ownerReferences"]
    del cluster.there["JobSet", PLACING.name]
    cluster.there["Secret", PLACING.name] = {"metadata": {"name": PLACING.name}}
    clear_orphans(cluster, [], _CREATED + timedelta(days=8))
    assert list(cluster.there) == [("Secret", PLACING.name)]
