"""Quotas: what a queue never has, and what it has now."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.engines.kubernetes.queues import Quota, beyond, lacking, quantity, quota_of
from tests.stacks.engines.kubernetes.test_manifests import job


def queue(*quotas: dict[str, str], cohort: str = "", used: str = "0") -> Quota:
    flavors = [{"name": f"f{number}", "resources": [quota]} for number, quota in enumerate(quotas)]
    reserved = [{"name": "f0", "resources": [{"name": quotas[0]["name"], "total": used}]}]
    spec: dict[str, object] = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}
    return quota_of({"spec": {**spec, "cohortName": cohort}, "status": {"flavorsReservation": reserved}})


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", "1"), ("500m", "0.5"), ("1.5", "1.5"), ("2k", "2000"), ("2Ki", "2048"), ("1Gi", "1073741824")],
)
def test_quantities(text: str, number: str) -> None:
    assert quantity(text) == Decimal(number)


@given(nodes=st.integers(1, 64), cpu=st.integers(1, 64), first=st.integers(0, 2048), second=st.integers(0, 2048))
def test_a_job_is_beyond_what_all_flavors_have_together(nodes: int, cpu: int, first: int, second: int) -> None:
    file = job(nodes={"min": 1, "max": nodes}, resources={"cpu": str(cpu), "memory": "1Gi"})
    quota = queue({"name": "cpu", "nominalQuota": str(first)}, {"name": "cpu", "nominalQuota": str(second)})
    found = dict(beyond(file, quota))
    assert ("cpu" in found) == (nodes * cpu > first + second)
    assert found["memory"] == "the queue has no quota of it"


def test_what_may_be_borrowed_is_no_reason_to_refuse() -> None:
    file = job(resources={"cpu": "8", "memory": "1Gi"})
    free = queue({"name": "cpu", "nominalQuota": "1"}, cohort="all")
    some = queue({"name": "cpu", "nominalQuota": "1", "borrowingLimit": "4"}, cohort="all")
    alone = queue({"name": "cpu", "nominalQuota": "1", "borrowingLimit": "40"})
    assert "cpu" not in dict(beyond(file, free))
    assert "cpu" in dict(beyond(file, some))
    assert "cpu" in dict(beyond(file, alone)), "there is nobody to borrow from"


def test_room_is_what_nobody_has_reserved() -> None:
    file = job(resources={"cpu": "2", "memory": "1"})
    roomy = queue({"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "1Gi"}, used="2")
    full = queue({"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "1Gi"}, used="2500m")
    assert lacking(file, roomy) == []
    assert [each.partition(":")[0] for each in lacking(file, full)] == ["cpu"]
