"""TrainingNetwork: address plan, both ways out, GPU networks, and nothing that could be reached from outside."""

from ipaddress import IPv4Network
from typing import Any, cast

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_gcp import compute

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.findings import InputError
from gangway.components.core.limits import HeadPortsArgs
from gangway.components.gcp.fabric import MAIN, plan_fabric_networks
from gangway.components.gcp.network import (
    IAP_RANGE,
    ROLES,
    Flow,
    TrainingNetwork,
    declare_denial,
    declare_rules,
    network_tag,
    plan_flows,
    plan_network,
)
from tests.components.fixture_types import Make, Mistakes

PRIVATE = [IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16")]


@pytest.fixture
def args(labels: dict[str, str]) -> dict[str, Any]:
    """Arguments of TrainingNetwork, to be varied."""
    place = {"project": "lab", "region": "us-east4", "zone": "us-east4-b"}
    return {"cidr": "10.42.0.0/16", **place, "egress": "nat", "tags": labels}


@pytest.fixture
def make(declare_seen: Make, args: dict[str, Any]) -> Make:
    """Declares a network with changes."""

    return lambda **changes: declare_seen(TrainingNetwork, {**args, **changes})


@st.composite
def private_networks(draw: st.DrawFn) -> IPv4Network:
    around = draw(st.sampled_from(PRIVATE))
    prefix = draw(st.integers(max(16, around.prefixlen), 20))
    place = draw(st.integers(0, 2 ** (prefix - around.prefixlen) - 1))
    return IPv4Network((int(around.network_address) + place * 2 ** (32 - prefix), prefix))


@given(private_networks(), st.integers(0, 9))
def test_subnets_are_disjoint_and_inside_the_range(network: IPv4Network, further: int) -> None:
    plan = plan_network(str(network), further)
    subnets = [IPv4Network(cidr) for cidr in (plan.private_cidr, *plan.fabric_cidrs, plan.services_cidr)]
    assert len(plan.fabric_cidrs) == further
    assert all(subnet.subnet_of(network) for subnet in subnets)
    assert not any(a.overlaps(b) for i, a in enumerate(subnets) for b in subnets[i + 1 :])
    assert all(subnet.prefixlen <= 24 for subnet in subnets), "four addresses of each are Google's"
    assert subnets[-1].prefixlen <= 23, "what one Managed Lustre instance takes"


def test_the_plan_of_a_16_by_hand() -> None:
    plan = plan_network("10.42.0.0/16", 2)
    assert plan.private_cidr == "10.42.0.0/18"
    assert plan.fabric_cidrs == ("10.42.64.0/20", "10.42.80.0/20")
    assert plan.services_cidr == "10.42.224.0/19"


@given(st.text(max_size=20))
def test_any_text_is_a_plan_or_an_input_error(cidr: str) -> None:
    try:
        plan = plan_network(cidr)
    except InputError:
        return
    assert IPv4Network(plan.private_cidr).subnet_of(IPv4Network(cidr))


def test_a_plain_network_behind_nat(make: Make) -> None:
    made = make()
    network, subnet, nat = made.one("Network"), made.one("Subnetwork").inputs, made.one("RouterNat").inputs
    assert network.inputs == {
        "project": "lab", "autoCreateSubnetworks": False, "routingMode": "REGIONAL", "mtu": 8896,
        "deleteDefaultRoutesOnCreate": False,
    }  # fmt: skip
    assert (subnet["ipCidrRange"], subnet["network"]) == ("10.42.0.0/18", network.id)
    assert subnet["privateIpGoogleAccess"] is True
    assert subnet["logConfig"]["aggregationInterval"] == "INTERVAL_10_MIN"
    assert nat["router"] == made.one("Router").inputs.get("name", "${Router.demo-nat.name}")
    assert nat["sourceSubnetworkIpRangesToNat"] == "ALL_SUBNETWORKS_ALL_IP_RANGES"
    assert not made.of("ManagedZone"), "Google's APIs have their public names"
    assert not made.of("Connection")


def test_without_nat_only_googles_apis_are_reached(make: Make) -> None:
    made = make(egress="endpoints")
    assert made.one("Network").inputs["deleteDefaultRoutesOnCreate"] is True
    route = made.one("Route").inputs
    # Those of restricted.googleapis.com, before which a service perimeter can stand.
    assert (route["destRange"], route["nextHopGateway"]) == ("199.36.153.4/30", "default-internet-gateway")
    assert not [*made.of("Router"), *made.of("RouterNat")]
    zones = {zone.inputs["dnsName"]: zone for zone in made.of("ManagedZone")}
    assert set(zones) == {"googleapis.com.", "pkg.dev."}
    records = {(r.inputs["name"], r.inputs["type"]): r.inputs["rrdatas"] for r in made.of("RecordSet")}
    for domain, zone in zones.items():
        assert zone.inputs["visibility"] == "private"
        assert records[f"*.{domain}", "CNAME"] == [domain]
        addresses = records[domain, "A"]
        assert len(addresses) == 4
        assert all(IPv4Network(address).subnet_of(IPv4Network(route["destRange"])) for address in addresses)


@pytest.mark.parametrize(("egress", "way_out"), [("nat", ["RouterNat"]), ("endpoints", ["Route", "RecordSet"])])
def test_machines_come_after_the_way_out_and_the_firewall(
    declare: Make, args: dict[str, Any], egress: str, way_out: list[str]
) -> None:
    def program() -> None:
        network = TrainingNetwork("demo", {**args, "egress": egress, "machine_type": "a3-highgpu-8g"})  # type: ignore[typeddict-item]  # a fixture's dict
        compute.Address("main", subnetwork=network.private_subnet_ids[0])
        compute.Address("gpu", subnetwork=network.fabric_subnet_ids[0])

    made = declare(program)
    gpu, main = made.of("Address")
    rules = {rule.urn for rule in made.of("Firewall")}
    assert len(rules) == 6
    assert rules | {r.urn for kind in way_out for r in made.of(kind)} <= main.dependencies
    assert rules <= gpu.dependencies


def test_gpu_nics_get_networks_that_lead_nowhere(make: Make) -> None:
    made = make(machine_type="a3-megagpu-8g")
    networks = {network.name: network.inputs for network in made.of("Network")}
    assert set(networks) == {"demo-main", *(f"demo-gpu-{n}" for n in range(1, 9))}
    for name, inputs in networks.items():
        gpu = name != "demo-main"
        assert (inputs["mtu"], inputs["deleteDefaultRoutesOnCreate"]) == ((8244, True) if gpu else (8896, False))
        assert "networkProfile" not in inputs
    assert made.seen["fabric_subnet_ids"] == [f"${{Subnetwork.demo-gpu-{n}-0.id}}" for n in range(1, 9)]
    rules = {rule.inputs["network"] for rule in made.of("Firewall")}
    assert rules == {f"${{Network.{name}.id}}" for name in networks}, "each network lets its workers talk"
    further = [s.inputs for s in made.of("Subnetwork") if s.name != "demo-private"]
    assert not [s for s in further if "privateIpGoogleAccess" in s or "logConfig" in s]
    assert len({s["ipCidrRange"] for s in further}) == 8


@pytest.mark.parametrize("machine_type", ["a3-ultragpu-8g", "a4-highgpu-8g"])
def test_rdma_nics_share_a_network_with_the_zones_profile(make: Make, machine_type: str) -> None:
    made = make(machine_type=machine_type)
    networks = {network.name: network.inputs for network in made.of("Network")}
    assert set(networks) == {"demo-main", "demo-host-1", "demo-rdma"}
    rdma = networks["demo-rdma"]
    assert rdma["networkProfile"] == "projects/lab/global/networkProfiles/us-east4-b-vpc-roce"
    assert rdma["mtu"] == 8896
    assert "deleteDefaultRoutesOnCreate" not in rdma
    assert made.seen["fabric_subnet_ids"] == [
        "${Subnetwork.demo-host-1-0.id}", *(f"${{Subnetwork.demo-rdma-{n}.id}}" for n in range(8))
    ]  # fmt: skip
    assert "${Network.demo-rdma.id}" not in {rule.inputs["network"] for rule in made.of("Firewall")}


def test_a_head_has_a_name_and_a_tag(make: Make) -> None:
    made = make(head={"rendezvous_port": 29400, "metrics_port": 9400})
    zone = made.one("ManagedZone").inputs
    assert zone["dnsName"] == "demo.gangway.internal."
    assert zone["privateVisibilityConfig"] == {"networks": [{"networkUrl": "${Network.demo-main.id}"}]}
    assert made.seen["private_zone_id"] == "${ManagedZone.demo-head.name}"
    assert made.seen["head_security_group_id"] == "demo-head"
    assert made.seen["fabric_security_group_id"] == "demo-fabric"
    without = make(head=None)
    assert (without.seen["head_security_group_id"], without.seen["private_zone_id"]) == ("", "")


def test_googles_services_are_connected_on_request(make: Make, labels: dict[str, str]) -> None:
    made = make(private_services=True)
    held, connection = made.one("GlobalAddress").inputs, made.one("Connection")
    assert (held["address"], held["prefixLength"]) == ("10.42.224.0", 19)
    assert (held["purpose"], held["addressType"], held["labels"]) == ("VPC_PEERING", "INTERNAL", labels)
    assert connection.inputs["reservedPeeringRanges"] == ["${GlobalAddress.demo-services.name}"]
    lustre = next(rule.inputs for rule in made.of("Firewall") if rule.name == "demo-lustre")
    assert lustre["sourceRanges"] == ["10.42.224.0/19"]
    assert lustre["allows"] == [{"protocol": "tcp", "ports": ["988"]}]


def test_logs_on_request(make: Make) -> None:
    assert "logConfig" not in make(flow_logs=False).one("Subnetwork").inputs
    names = {rule.name for rule in make(log_denied=True).of("Firewall")} - {rule.name for rule in make().of("Firewall")}
    assert names == {"demo-denied"}


def test_everything_is_the_components_child_in_one_project(make: Make) -> None:
    everything = {"egress": "endpoints", "machine_type": "a3-ultragpu-8g", "private_services": True,
                  "head": {"rendezvous_port": 1, "metrics_port": 2}}  # fmt: skip
    for made in (make(**everything), make(egress="nat")):
        (component,) = [r for r in made.resources if r.type == "gangway:gcp:TrainingNetwork"]
        children = [r for r in made.resources if r.custom]
        assert all(r.parent == component.urn for r in children)
        assert all(r.inputs["project"] == "lab" for r in children if not r.type.endswith(":Connection"))
        assert made.outputs[component.urn] == set(TrainingNetwork.__annotations__)


@pytest.mark.parametrize("zone", ["us-east1-b", "europe-west4-b", "us-east4"])
def test_a_zone_of_another_region_is_refused(make: Make, zone: str) -> None:
    with pytest.raises(InputError, match="another region") as caught:
        make(zone=zone)
    assert caught.value.place == "gangway:cluster.zone"


@pytest.mark.slow
def test_the_api_takes_the_networks(make: Make, api_mistakes: Mistakes) -> None:
    made = make(machine_type="a3-ultragpu-8g", private_services=True, head={"rendezvous_port": 1, "metrics_port": 2})
    for network in made.each("Network"):
        ours = {"autoCreateSubnetworks", "mtu", "networkProfile"}
        body = {key: value for key, value in network.inputs.items() if key in ours}
        body["routingConfig"] = {"routingMode": network.inputs["routingMode"]}
        assert api_mistakes("compute.v1", "Network", body) == []
    for subnet in made.each("Subnetwork"):
        log = subnet.inputs.get("logConfig", {})
        assert api_mistakes("compute.v1", "SubnetworkLogConfig", log) == []
    nat = made.one("RouterNat").inputs
    body = {
        "natIpAllocateOption": nat["natIpAllocateOption"],
        "sourceSubnetworkIpRangesToNat": nat["sourceSubnetworkIpRangesToNat"],
        "logConfig": nat["logConfig"],
    }
    assert api_mistakes("compute.v1", "RouterNat", body) == []
    held = made.one("GlobalAddress").inputs
    named = ("purpose", "addressType", "address", "prefixLength", "network", "labels")
    assert api_mistakes("compute.v1", "Address", {key: held[key] for key in named}) == []


MACHINES = cast("dict[str, GcpMachineType]", load_provider("gcp").machines)
HEAD: HeadPortsArgs = {"rendezvous_port": 29400, "metrics_port": 9400}
SERVICES = "10.42.224.0/19"

heads = st.none() | st.fixed_dictionaries(
    {"rendezvous_port": st.integers(1, 65535), "metrics_port": st.integers(1, 65535)},
    optional={"lustre": st.booleans()},
)
ranges = st.none() | st.just(SERVICES)


def passes(flows: tuple[Flow, ...], source: str, target: str, port: int, network: str = MAIN) -> bool:
    """Whether a tcp connection is allowed."""
    return any(
        (flow.source, flow.target, flow.network) == (source, target, network) and (not flow.ports or port in flow.ports)
        for flow in flows
    )


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        ("fabric", "fabric", 45000, True),
        ("fabric", "head", 29400, True),
        ("head", "fabric", 9400, True),
        (IAP_RANGE, "fabric", 22, True),
        (IAP_RANGE, "head", 22, True),
        (SERVICES, "fabric", 988, True),
        (SERVICES, "head", 988, True),
        ("fabric", "head", 22, False),
        ("fabric", "head", 9400, False),
        ("head", "fabric", 22, False),
        ("head", "fabric", 29400, False),
        ("head", "head", 29400, False),
        (IAP_RANGE, "head", 29400, False),
        (IAP_RANGE, "fabric", 9400, False),
        (SERVICES, "fabric", 22, False),
        ("0.0.0.0/0", "head", 22, False),
    ],
)
def test_the_flows_of_a_whole_stack(source: str, target: str, port: int, allowed: bool) -> None:
    flows = plan_flows({**HEAD, "lustre": True}, services_range=SERVICES)
    assert passes(flows, source, target, port) is allowed


def test_the_head_is_reached_by_no_file_server_that_it_does_not_use() -> None:
    assert not passes(plan_flows(HEAD, services_range=SERVICES), SERVICES, "head", 988)
    assert not any(flow.target == "head" for flow in plan_flows(None, services_range=SERVICES))


@given(heads, st.sampled_from(sorted(MACHINES)), ranges)
def test_every_flow_is_of_known_ends_and_no_wider_than_it_must_be(
    head: HeadPortsArgs | None, machine_type: str, services_range: str | None
) -> None:
    networks = plan_fabric_networks(MACHINES[machine_type], "us-east4-b")
    flows = plan_flows(head, networks, services_range)
    names = [flow.name for flow in flows]
    assert len(set(names)) == len(names), "rules are told apart by them"
    ruled = {network.name for network in networks if network.takes_firewall_rules}
    assert {flow.network for flow in flows} == {MAIN, *ruled}, "none in an RDMA network, which takes none"
    for flow in flows:
        assert flow.target in ROLES
        assert flow.source in {*ROLES, IAP_RANGE, services_range}
        every_port = flow.protocol == "all"
        assert every_port == (not flow.ports)
        assert not every_port or (flow.source, flow.target) == ("fabric", "fabric"), "everything only among workers"
    assert all(passes(flows, "fabric", "fabric", 12345, network) for network in ruled)


@given(st.from_regex(r"\A[a-z][a-z0-9-]{38}[a-z0-9]\Z"), st.sampled_from(sorted(MACHINES)))
def test_names_of_the_longest_stack_fit(stack: str, machine_type: str) -> None:
    networks = plan_fabric_networks(MACHINES[machine_type], "us-east4-b")
    flows = plan_flows({**HEAD, "lustre": True}, networks, SERVICES)
    # Pulumi adds a dash and seven digits.
    assert all(len(f"{stack}-{flow.name}") <= 63 - 8 for flow in flows)
    assert all(len(network_tag(stack, role)) <= 63 for role in ROLES)


@pytest.fixture
def rules(declare: Make) -> dict[str, Any]:
    """The rules of a stack with a head, as they reach the provider, by name."""

    def program() -> None:
        main = compute.Network("main")
        declare_rules("demo", "lab", plan_flows(HEAD), {MAIN: main.id}, pulumi.ResourceOptions())
        declare_denial("demo", "lab", main, pulumi.ResourceOptions())

    return {rule.name: rule.inputs for rule in declare(program).of("Firewall")}


def test_rules_name_machines_by_their_tags(rules: dict[str, Any]) -> None:
    assert set(rules) == {f"demo-{name}" for name in
                          ("self", "iap-fabric", "iap-head", "rendezvous", "metrics", "denied")}  # fmt: skip
    assert rules["demo-rendezvous"] == {
        "project": "lab", "network": "${Network.main.id}", "description": "fabric to head", "direction": "INGRESS",
        "sourceTags": ["demo-fabric"], "targetTags": ["demo-head"], "allows": [{"protocol": "tcp", "ports": ["29400"]}],
    }  # fmt: skip
    assert rules["demo-self"]["allows"] == [{"protocol": "all"}]
    assert rules["demo-iap-head"]["sourceRanges"] == ["35.235.240.0/20"]
    assert "sourceTags" not in rules["demo-iap-head"]


def test_what_is_refused_is_logged_last(rules: dict[str, Any]) -> None:
    denied = rules["demo-denied"]
    assert (denied["priority"], denied["denies"], denied["sourceRanges"]) == (
        65534,
        [{"protocol": "all"}],
        ["0.0.0.0/0"],
    )
    assert "allows" not in denied
    assert not [rule for name, rule in rules.items() if name != "demo-denied" and "priority" in rule]


def test_the_api_takes_the_rules(rules: dict[str, Any], api_mistakes: Mistakes) -> None:
    assert rules
    for rule in rules.values():
        spelled = {"allows": "allowed", "denies": "denied"}
        body = {key: value for key, value in rule.items() if key not in {"project", *spelled}}
        for ours, theirs in spelled.items():
            body[theirs] = [{"IPProtocol": r["protocol"], "ports": r.get("ports", [])} for r in rule.get(ours, [])]
        body["logConfig"] = rule.get("logConfig", {})
        assert api_mistakes("compute.v1", "Firewall", body) == []
