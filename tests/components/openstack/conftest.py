"""Declares OpenStack's components, and what each is made of when it declares everything it can."""

from typing import Any

import pytest

from gangway.components.core.fields import Egress

UUIDS = [f"{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "123"]
"""Of networks and a reservation that are there already."""


@pytest.fixture
def tags() -> dict[str, str]:
    return {"team": "ml", "gangway:stack": "demo", "cost_center": "4711"}


@pytest.fixture
def everything(tags: dict[str, str]) -> dict[str, Any]:
    """Arguments of all components, by name."""
    return {
        "tags": tags,
        "cidr": "10.42.0.0/20",
        "addresses": None,
        "egress": Egress.ENDPOINTS,
        "external_network_id": UUIDS[0],
        "service_cidrs": ["192.0.2.0/24"],
        "dns_nameservers": ["192.0.2.53"],
        "head": {"rendezvous_port": 29400, "metrics_port": 9400},
        "capacity_gib": 1024,
        "protocol": "NFS",
        "share_type": "cephfsnfstype",
        "zone": "nova",
        "clients": "10.42.0.0/20",
        "share_network": True,
        "network_id": "network",
        "subnet_ids": ["subnet"],
        "subnet_id": "subnet",
        "run_bucket": "demo-runs",
        "role": "member",
        "access_rules": True,
        "machine_type": "gpu.h100x8",
        "num_nodes_max": 2,
        "capacity": [{"kind": "on-demand"}],
        "placement": "anti-affinity",
        "image": UUIDS[1],
        "boot_volume_gib": 200,
        "volume_type": "luks",
        "security_group_ids": ["fabric"],
        "rdma_network_id": UUIDS[2],
        "rdma_ports": 8,
        "rdma_vnic_type": "direct-physical",
        "head_host": "10.42.0.10",
        "user_data": "H4sIAAAA",
        "private_ip": "10.42.0.10",
        "content": '{"member_key": "PEM"}',
        "url_key": "00ff",
        "of_account": False,
        "period": 1,
        "secrets_place": "https://swift.example.com/v1/AUTH_1/demo-secrets/0123456789abcdef.json",
        "secrets_signature": "temp_url_sig=ab&temp_url_expires=1",
    }
