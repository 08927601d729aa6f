"""The findings of stacks on OpenStack."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.providers.openstack.findings import findings
from gangway.stacks.providers.openstack.plan import plan

Edited = Callable[..., StackConfig]
RESERVED = {"capacity": [{"kind": "reservation", "id": "33333333-0000-4000-8000-333333333333"}]}
SEVERE = {"error": Severity.ERROR, "warning": Severity.WARNING, "info": Severity.INFO}


def codes(config: StackConfig) -> dict[str, Severity]:
    return {finding.code: finding.severity for finding in findings(config, plan(config), None)}


def test_the_shipped_stack_may_come_up(made: Plan) -> None:
    assert not made.has_errors
    said = {finding.code for finding in made.findings}
    assert {
        "budget.not-enforced", "budget.unknown-price", "capacity.all-or-none", "cost.price-unknown",
        "encryption.not-known", "fabric.check", "fabric.sr-iov", "identity.access-rules", "image.own",
        "job.nodes-stay", "observe.no-logs", "site.assumed", "storage.by-router",
    } <= said  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "code", "severity", "words"),
    [
        ({}, "budget.not-enforced", "warning", "CloudKitty"),
        ({"job": {"max_hours": 7}}, "budget.not-enforced", "warning", "max_hours, 7 h"),
        ({"openstack": {"rdma_network_id": None}}, "fabric.by-flavour", "info", "8 adapters per node"),
        ({"cluster": RESERVED}, "capacity.lease-ends", "warning", "Blazar deletes the nodes"),
        ({"cluster": RESERVED}, "capacity.reserved-hosts", "info", "machine_type: reservation:33333333"),
        ({"cluster": RESERVED}, "placement.ignored", "warning", "soft-affinity has no effect"),
        ({"openstack": {"placement": "affinity"}}, "placement.one-host", "warning", "all 4 nodes on one host"),
        (
            {"network": {"egress": "endpoints"}, "openstack": {"service_cidrs": ["192.0.2.0/24"]}},
            "network.no-packages", "info", "Prometheus is not started",
        ),
        (
            {"network": {"egress": "endpoints"}, "openstack": {"service_cidrs": ["192.0.2.0/24"]}},
            "network.ways-out", "info", "by DNS and into any project's containers",
        ),
        ({"network": {"egress": "nat"}}, "network.ways-out", "info", "machines reach the whole internet"),
        ({"openstack": {"share_protocol": "CEPHFS"}}, "storage.ceph-reached", "info", "Ceph's monitors"),
        ({"openstack": {"access_rules": False}}, "identity.whole-project", "warning", "role member"),
        ({"job": {"terminate_when_done": False}}, "job.nodes-stay", "info", "the nodes stay, and cost"),
        ({"storage": None, "openstack": {"share_type": None}}, "storage.not-shared", "error", "none"),
        ({"site": {"fabric": None}, "openstack": {"rdma_network_id": None},
          "cluster": {"fabric_check": {"enabled": True}}}, "fabric.check-ignored", "warning", "without a fabric"),
        ({"site": {"accelerator": "V100x8"}}, "machine.not-trained-on", "error", "Volta"),
        (
            {"openstack": {"boot": "volume", "image": "33333333-0000-4000-8000-333333333333",
                           "head_image": None, "volume_type": "luks"}},
            "encryption.not-known", "info", "volumes of type luks",
        ),
    ],
)  # fmt: skip
def test_what_is_said(edited: Edited, changes: dict[str, Any], code: str, severity: str, words: str) -> None:
    config = edited(**changes)
    found = [finding for finding in findings(config, plan(config), None) if finding.code == code]
    assert found, code
    assert {finding.severity for finding in found} == {SEVERE[severity]}
    assert any(words in f"{finding.message} {finding.fix}" for finding in found), found


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"openstack": {"placement": None}, "cluster": RESERVED}, "placement.ignored"),
        (
            {"cluster": {**RESERVED, "machine_type": f"reservation:{RESERVED['capacity'][0]['id']}"}},
            "capacity.reserved-hosts",
        ),
        ({"cluster": {"nodes": {"min": 4, "max": 4}}}, "capacity.all-or-none"),
        ({"openstack": {"share_network": True}}, "storage.by-router"),
        ({"openstack": {"access_rules": False}}, "identity.access-rules"),
        ({}, "network.no-packages"),
        ({}, "cost.usage-unsaid"),
    ],
)
def test_what_is_not_said_where_it_does_not_hold(edited: Edited, changes: dict[str, Any], code: str) -> None:
    assert code not in codes(edited(**changes))


def test_machines_that_have_shut_down_still_cost(made: Plan) -> None:
    assert made.config.work.terminate_when_done
    assert made.idle_hourly == made.rungs[0].hourly == 4 * 14.5
