"""Checks of existing resources on Google Cloud against an HTTP stand-in that knows all of gcp-existing."""

from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.fields import Egress
from gangway.components.gcp.identity import KEY_USER, key_users
from gangway.components.gcp.network import Flow
from gangway.live.preflight.check import Answer, State
from gangway.live.preflight.gcp_existing import agent_member, allows, existing_checks
from gangway.stacks.loading.loader import from_file
from gangway.stacks.providers.gcp.existing import get_existing
from gangway.stacks.providers.gcp.plan import key_services, plan
from tests.google_methods import DOCUMENTS, published

CONFIG = from_file(Path(__file__).parents[4] / "stacks" / "Pulumi.gcp-existing.yaml")
EXISTING, PLANNED = get_existing(CONFIG), plan(CONFIG)
C, HOST, NUMBER = "/compute.googleapis.com/compute/v1", "projects/net-host", "123456789012"
NETWORK, SUBNETWORK = f"{C}/{EXISTING.network}", f"{C}/{EXISTING.subnetwork}"
NIC = EXISTING.fabric_subnetworks[0]
FIREWALL, ROUTES = f"{NETWORK}/getEffectiveFirewalls", f"{C}/{HOST}/global/routes"
ROUTERS = f"{C}/{HOST}/regions/us-central1/routers"
KEY, LUSTRE = f"/cloudkms.googleapis.com/v1/{EXISTING.kms_key}", f"/lustre.googleapis.com/v1/{EXISTING.file_system}"
ACCOUNT = f"/iam.googleapis.com/v1/projects/-/serviceAccounts/{EXISTING.accounts['nodes']}"
BUCKET = f"/storage.googleapis.com/storage/v1/b/{EXISTING.run_bucket}"
LOGS = f"/logging.googleapis.com/v2/{EXISTING.log_bucket}"
REPOSITORY = f"/artifactregistry.googleapis.com/v1/{EXISTING.repository}"
ALL = [{"IPProtocol": "all"}]
Checked = Callable[..., dict[str, Answer]]


def link(name: str | None) -> str:
    return f"https://www.googleapis.com/compute/v1/{name}"


def rule(target: str, allowed: list[dict[str, Any]], **sources: Any) -> dict[str, Any]:
    return {"direction": "INGRESS", "targetTags": [target], "allowed": allowed, **sources}


def tcp(*ports: str) -> list[dict[str, Any]]:
    return [{"IPProtocol": "tcp", "ports": list(ports)}]


RULES = [
    rule("gpu-node", ALL, sourceTags=["gpu-node"]),
    rule("gpu-node", tcp("22", "988"), sourceRanges=["35.235.240.0/20", "10.60.0.0/16"]),
    rule("gpu-head", tcp("22", "900-1000"), sourceRanges=["35.235.240.0/20", "10.60.0.0/20"]),
    rule("gpu-head", tcp("29000-30000"), sourceRanges=["10.0.0.0/8"]),
    rule("gpu-node", tcp("9400"), sourceTags=["gpu-head"]),
]


def subnetwork(network: str | None, cidr: str, free: int) -> dict[str, Any]:
    used = {"ipv4Utilizations": [{"rangeName": "pods", "totalFreeIp": "1"}, {"totalFreeIp": str(free)}]}
    return {"network": link(network), "ipCidrRange": cidr, "privateIpGoogleAccess": True, "utilizationDetails": used}


@pytest.fixture
def good(cloud: Any) -> Any:
    users = [agent_member(one, NUMBER) for one in key_users(key_services(CONFIG, PLANNED))]
    cloud.answers = {
        NETWORK: {"mtu": 8896, "peerings": [{"name": "servicenetworking-googleapis-com"}]},
        SUBNETWORK: subnetwork(EXISTING.network, "10.20.0.0/22", 900),
        ROUTES: {
            "items": [
                {
                    "network": link(EXISTING.network),
                    "destRange": "0.0.0.0/0",
                    "nextHopGateway": link(f"{HOST}/global/gateways/default-internet-gateway"),
                }
            ]
        },
        ROUTERS: {
            "items": [
                {
                    "network": link(EXISTING.network),
                    "nats": [{"name": "out", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}],
                }
            ]
        },
        FIREWALL: {"firewalls": RULES},
        LUSTRE: {
            "network": EXISTING.network,
            "state": "ACTIVE",
            "capacityGib": "18000",
            "perUnitStorageThroughput": "500",
        },
        KEY: {"purpose": "ENCRYPT_DECRYPT", "primary": {"state": "ENABLED"}},
        f"{KEY}:getIamPolicy": {"bindings": [{"role": KEY_USER, "members": users}]},
        "/cloudresourcemanager.googleapis.com/v3/projects/my-project": {"name": f"projects/{NUMBER}"},
        REPOSITORY: {"format": "DOCKER", "mode": "STANDARD_REPOSITORY"},
        BUCKET: {"location": "US-CENTRAL1", "versioning": {"enabled": True}},
        LOGS: {"lifecycleState": "ACTIVE", "retentionDays": 400},
    }
    for at, nic in enumerate(EXISTING.fabric_subnetworks):
        cloud.answers[f"{C}/{nic.network}"] = {"mtu": 8896}
        cloud.answers[f"{C}/{nic.network}/getEffectiveFirewalls"] = {"firewalls": RULES}
        cloud.answers[f"{C}/{nic.subnetwork}"] = subnetwork(nic.network, f"10.30.{at}.0/24", 200)
    for email in EXISTING.accounts.values():
        path = f"/iam.googleapis.com/v1/projects/-/serviceAccounts/{email}"
        cloud.answers[path] = {"email": email}
        cloud.answers[f"{path}:testIamPermissions"] = {"permissions": ["iam.serviceAccounts.actAs"]}
    return cloud


@pytest.fixture
def checked(good: Any, rest: Any, outcomes: Any) -> Checked:
    def run(changes: dict[str, Any], config: Any = CONFIG) -> dict[str, Answer]:
        good.answers.update(changes)
        found: dict[str, Answer] = outcomes(list(existing_checks(config, PLANNED, rest)))
        return found

    return run


def test_all_in_good_order(checked: Checked, good: Any) -> None:
    found = checked({})
    assert {name: answer.result for name, answer in found.items() if answer.result.state is not State.OK} == {}
    assert len(found) > 30
    hosts = [(call, call.path[1:].partition(".googleapis.com")[0]) for call in good.calls]
    # There is no document of Managed Lustre.
    assert [call.path for call, host in hosts if host != "lustre" and not published(call)] == []
    assert {host for _, host in hosts} - {"lustre"} <= set(DOCUMENTS)


RULES_OF_IT = "firewall of projects/net-host/global/networks/shared"
ELSEWHERE = [{"network": link("projects/net-host/global/networks/old"), "destRange": "0.0.0.0/0"}]


@pytest.mark.parametrize(
    ("path", "answer", "subject", "state", "words"),
    [
        (NETWORK, 404, "existing projects/net-host/global/networks/shared", State.ERROR, "does not exist"),
        (NETWORK, {"mtu": 8896}, "existing projects/net-host/global/networks/shared", State.WARNING, "not connected"),
        (SUBNETWORK, 403, f"existing {EXISTING.subnetwork}", State.UNKNOWN, "no permission"),
        (
            SUBNETWORK,
            subnetwork(EXISTING.network, "10.20.0.0/22", 3),
            f"existing {EXISTING.subnetwork}",
            State.ERROR,
            "3 addresses of 10.20.0.0/22 are free, but the machines need 5",
        ),
        (f"{C}/{NIC.network}", {"mtu": 1460}, f"existing {NIC.network}", State.ERROR, "its MTU is 1460 bytes"),
        (ROUTES, {"items": ELSEWHERE}, "way out of", State.ERROR, "no route leads to 0.0.0.0/0"),
        (ROUTERS, {}, "way out of", State.ERROR, "no Cloud NAT"),
        (
            FIREWALL,
            {"firewalls": RULES[1:]},
            RULES_OF_IT,
            State.ERROR,
            "self",
        ),
        (FIREWALL, {}, RULES_OF_IT, State.ERROR, "lustre, lustre-head"),
        (
            LUSTRE,
            {"state": "STOPPED", "capacityGib": "9000"},
            f"existing {EXISTING.file_system}",
            State.ERROR,
            "STOPPED",
        ),
        (KEY, {"purpose": "ASYMMETRIC_SIGN"}, f"existing {EXISTING.kms_key}", State.ERROR, "ASYMMETRIC_SIGN"),
        (f"{KEY}:getIamPolicy", {}, "users of", State.WARNING, "service-123456789012@compute-system"),
        (ACCOUNT, {"disabled": True}, f"existing {EXISTING.accounts['nodes']}", State.ERROR, "it is disabled"),
        (f"{ACCOUNT}:testIamPermissions", {}, f"existing {EXISTING.accounts['nodes']}", State.ERROR, "actAs"),
        (
            REPOSITORY,
            {"mode": "REMOTE_REPOSITORY"},
            f"existing {EXISTING.repository}",
            State.ERROR,
            "REMOTE",
        ),
        (BUCKET, {"location": "US"}, "existing my-gan-runs", State.WARNING, "without versioning"),
        (BUCKET, {"location": "EU"}, "existing my-gan-runs", State.ERROR, "in eu"),
        (
            LOGS,
            {"retentionDays": 7},
            f"existing {EXISTING.log_bucket}",
            State.ERROR,
            "7 days",
        ),
    ],
)
def test_what_does_not_fit(checked: Checked, path: str, answer: Any, subject: str, state: State, words: str) -> None:
    found = next(one for name, one in checked({path: answer}).items() if name.startswith(subject))
    assert found.result.state is state
    assert words in found.result.answer
    assert found.result.fix or state is State.UNKNOWN
    assert found.check.path.startswith("gangway:gcp.existing.")


def test_endpoints_need_a_route_to_googles_apis(checked: Checked) -> None:
    closed = CONFIG.model_copy(update={"network": CONFIG.network.model_copy(update={"egress": Egress.ENDPOINTS})})
    assert next(a for n, a in checked({}, closed).items() if n.startswith("way out")).result.state is State.OK
    found = next(a for n, a in checked({ROUTES: {}}, closed).items() if n.startswith("way out"))
    assert "no route leads to 199.36.153.4/30" in found.result.answer


MACHINES = {"fabric": "node", "head": "head"}
ACCOUNTS = {"fabric": "n@p.iam.gserviceaccount.com", "head": "h@p.iam.gserviceaccount.com"}


@pytest.mark.parametrize(
    ("changes", "is_allowed"),
    [
        ({}, True),
        ({"targetTags": ["other"]}, False),
        ({"targetTags": [], "targetServiceAccounts": [ACCOUNTS["head"]]}, True),
        ({"targetTags": []}, True),
        ({"sourceTags": [], "sourceServiceAccounts": [ACCOUNTS["fabric"]]}, True),
        ({"sourceTags": [], "sourceRanges": ["10.20.0.0/24"]}, False),
        ({"sourceTags": [], "sourceRanges": ["10.20.0.0/16", "::/0"]}, True),
        ({"sourceTags": [], "sourceRanges": ["::/0"]}, False),
        ({"disabled": True}, False),
        ({"direction": "EGRESS"}, False),
        ({"allowed": tcp("29399", "29401-29500")}, False),
        ({"allowed": [{"IPProtocol": "udp"}]}, False),
        ({"allowed": [{"IPProtocol": "tcp"}]}, True),
    ],
)
def test_which_rules_allow_a_connection(changes: dict[str, Any], is_allowed: bool) -> None:
    one = {**rule("head", tcp("29400"), sourceTags=["node"]), **changes}
    flow = Flow("rendezvous", "fabric", "head", "tcp", (29400,))
    assert allows(one, flow, MACHINES, ACCOUNTS, IPv4Network("10.20.0.0/22")) is is_allowed
