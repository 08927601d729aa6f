"""What is old and over goes; what is young, or not over, or belongs to a set, stays."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.gcp.gke_fabric import team_fabric
from gangway.jobs.base import Phase
from gangway.jobs.kubernetes.objects import JobObjects
from gangway.jobs.kubernetes.start_objects import clear_old, clear_orphans, create_start, may_be_old
from gangway.jobs.kubernetes.status import get_status
from tests.gangway.jobs.kubernetes.test_manifests import PLACING, job
from tests.gangway.jobs.kubernetes.test_start_objects import Cluster
from tests.gangway.jobs.kubernetes.test_status import a_set, a_workload, cancelled

_CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


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
