"""Checks of existing resources on Google Cloud, and of what `up` cannot look up: routes, firewall rules, policies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, ip_network
from typing import Any

from gangway.components.core.fields import Egress
from gangway.components.gcp.fabric import JUMBO_MTU_BYTES
from gangway.components.gcp.identity import KEY_USER, account_id, get_agent, key_users
from gangway.components.gcp.network import RESTRICTED_API_RANGE, Flow
from gangway.live.preflight.check import Check, Result, State
from gangway.live.preflight.existing import existing_check, judge, judge_rules
from gangway.live.preflight.rest import Rest
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.existing import PATH, get_existing
from gangway.stacks.providers.gcp.existing_facts import (
    BucketFacts,
    Facts,
    FileSystemFacts,
    KeyFacts,
    LogBucketFacts,
    NetworkFacts,
    RepositoryFacts,
    SubnetworkFacts,
    full_name,
    problems,
)
from gangway.stacks.providers.gcp.existing_findings import flows, is_made, machine_tags
from gangway.stacks.providers.gcp.plan import GcpPlan, key_services

COMPUTE, IAM, KMS = "compute.googleapis.com", "iam.googleapis.com", "cloudkms.googleapis.com"
# VPC documentation, "Private services access": the peering that a private connection makes.
_PEERING = "servicenetworking-googleapis-com"
# Service agents that are not named like `get_agent`'s.
_OTHER_AGENTS = {
    "storage": "serviceAccount:service-{}@gs-project-accounts.iam.gserviceaccount.com",
    "logging": "serviceAccount:cmek-p{}@gcp-sa-logging.iam.gserviceaccount.com",
}
_TO_ALL = "0.0.0.0/0"


def existing_checks(config: StackConfig, planned: GcpPlan, rest: Rest) -> Iterator[Check]:
    """One per existing resource, and per requirement of a network; none without existing resources."""
    asks, existing = _Asks(config, planned, rest), get_existing(config)
    if existing.network is not None and existing.subnetwork is not None:
        yield asks.network("network", existing.network)
        yield asks.subnetwork("subnetwork", existing.subnetwork)
        yield asks.way_out(existing.network, existing.subnetwork)
        for network in dict.fromkeys(network for _, network in flows(config, planned)):
            if not is_made(config, network):
                yield asks.firewall(network)
    for at, nic in enumerate(existing.fabric_subnetworks):
        yield asks.network(f"fabric_subnetworks[{at}].network", nic.network)
        yield asks.subnetwork(f"fabric_subnetworks[{at}].subnetwork", nic.subnetwork)
    if existing.file_system is not None:
        yield asks.file_system(existing.file_system)
    if existing.kms_key is not None:
        yield asks.key(existing.kms_key)
        yield asks.key_policy(existing.kms_key)
    for key, email in existing.accounts.items():
        yield asks.account(f"service_accounts.{key}", email)
    if existing.repository is not None:
        yield asks.repository(existing.repository)
    if existing.run_bucket is not None:
        yield asks.bucket(existing.run_bucket)
    if existing.log_bucket is not None:
        yield asks.log_bucket(existing.log_bucket)


class _Asks:
    """One method per check."""

    def __init__(self, config: StackConfig, planned: GcpPlan, rest: Rest) -> None:
        self._config, self._planned, self._rest = config, planned, rest

    def _check(self, key: str, name: str, source: str, run: Callable[[], Result], what: str = "existing") -> Check:
        return existing_check(f"{PATH}.{key}", f"{what} {name}", source, run)

    def _judge(self, facts: Facts, good: str) -> Result:
        return judge(problems(self._config, self._planned, facts), good)

    def _compute(self, name: str, **parameters: Any) -> Any:
        return self._rest.get(COMPUTE, f"compute/v1/{name}", parameters or None)

    def network(self, key: str, name: str) -> Check:
        def run() -> Result:
            row = self._compute(name)
            mtu, peerings = row.get("mtu"), {one["name"] for one in row.get("peerings", ())}
            profile = full_name(row.get("networkProfile")) or ""
            facts = NetworkFacts(mtu, profile, _PEERING in peerings)
            result = self._judge(Facts(networks={name: facts}), f"MTU {mtu}")
            return self._main_network(facts) if result.state is State.OK and key == "network" else result

        return self._check(key, name, "compute.networks.get", run)

    def _main_network(self, facts: NetworkFacts) -> Result:
        """What is better different. Google advises the MTU for Managed Lustre."""
        storage, mtu = self._config.storage, facts.mtu_bytes
        if storage is not None and storage.kind == "lustre" and not facts.has_private_services:
            fix = "have its owner set up private services access, unless the file system is reached otherwise"
            return Result.warning("not connected to Google's managed services, as Managed Lustre requires", fix)
        if mtu is not None and mtu < JUMBO_MTU_BYTES:
            fix = f"have its owner set an MTU of {JUMBO_MTU_BYTES} if it matters: all machines there must stop for it"
            return Result.warning(f"MTU {mtu}: file systems are slower than with {JUMBO_MTU_BYTES}", fix)
        return Result.ok(f"MTU {mtu}")

    def subnetwork(self, key: str, name: str) -> Check:
        def run() -> Result:
            row = self._compute(name, views="WITH_UTILIZATION")
            used = row.get("utilizationDetails", {}).get("ipv4Utilizations", ())
            free = next((int(one["totalFreeIp"]) for one in used if not one.get("rangeName")), None)
            facts = SubnetworkFacts(
                network=row["network"],
                cidr=row["ipCidrRange"],
                private_google_access=row.get("privateIpGoogleAccess", False),
                ranges={one["rangeName"]: one["ipCidrRange"] for one in row.get("secondaryIpRanges", ())},
                free_addresses=free,
            )
            known = "unknown" if free is None else free
            return self._judge(Facts(subnetworks={name: facts}), f"{facts.cidr}, free addresses: {known}")

        return self._check(key, name, "compute.subnetworks.get", run)

    def way_out(self, network: str, subnetwork: str) -> Check:
        def run() -> Result:
            project = network.split("/")[1]
            rows = list(self._rest.rows(COMPUTE, f"compute/v1/projects/{project}/global/routes", "items", {}))
            routes = [row for row in rows if full_name(row["network"]) == network]
            if self._config.network.egress is Egress.ENDPOINTS:
                return _judge_api_route(routes)
            path = f"compute/v1/projects/{project}/regions/{self._config.region}/routers"
            routers = list(self._rest.rows(COMPUTE, path, "items", {}))
            nats = [nat for row in routers if full_name(row["network"]) == network for nat in row.get("nats", ())]
            return _judge_nat(routes, nats, subnetwork)

        return self._check("network", network, "compute.routes.list, compute.routers.list", run, "way out of")

    def firewall(self, network: str) -> Check:
        def run() -> Result:
            rules = self._compute(f"{network}/getEffectiveFirewalls").get("firewalls", ())
            inside = [subnetwork for owner, subnetwork in self._subnetworks() if owner == network]
            cidr = IPv4Network(self._compute(inside[0])["ipCidrRange"])
            tags, accounts = machine_tags(self._config), self._emails()
            needed = [flow for flow, owner in flows(self._config, self._planned) if owner == network]
            missing = [flow.name for flow in needed if not any(allows(r, flow, tags, accounts, cidr) for r in rules)]
            good = f"rules allow all {len(needed)} connections; policies of folders are not judged"
            return judge_rules(self._config, missing, good)

        return self._check("network", network, "compute.networks.getEffectiveFirewalls", run, "firewall of")

    def _subnetworks(self) -> list[tuple[str, str]]:
        existing = get_existing(self._config)
        nics = [(nic.network, nic.subnetwork) for nic in existing.fabric_subnetworks]
        return [(existing.network or "", existing.subnetwork or ""), *nics]

    def _emails(self) -> dict[str, str]:
        """Role -> service account of its machines."""
        accounts, stack = get_existing(self._config).accounts, self._config.stack
        own = {
            kind: f"{account_id(stack, kind)}@{self._planned.project}.iam.gserviceaccount.com"
            for kind in ("node", "head")
        }
        return {"fabric": accounts.get("nodes", own["node"]), "head": accounts.get("head", own["head"])}

    def file_system(self, name: str) -> Check:
        lustre = self._config.storage is not None and self._config.storage.kind == "lustre"
        service = "lustre" if lustre else "file"

        def run() -> Result:
            row = self._rest.get(f"{service}.googleapis.com", f"v1/{name}")
            facts = _lustre(row) if lustre else _filestore(row)
            return self._judge(Facts(file_system=facts), f"{facts.state}, {facts.capacity_gib} GiB")

        return self._check("file_system", name, f"{service}.projects.locations.instances.get", run)

    def key(self, name: str) -> Check:
        def run() -> Result:
            row = self._rest.get(KMS, f"v1/{name}")
            facts = KeyFacts(row.get("purpose"), row.get("primary", {}).get("state"))
            return self._judge(Facts(key=facts), f"{facts.purpose}, {facts.state}")

        return self._check("kms_key", name, "cloudkms.projects.locations.keyRings.cryptoKeys.get", run)

    def key_policy(self, name: str) -> Check:
        """Roles of the key ring or the project count too, but may not be readable: hence a warning."""

        def run() -> Result:
            project = self._rest.get("cloudresourcemanager.googleapis.com", f"v3/projects/{self._planned.project}")
            number = project["name"].rpartition("/")[2]
            bindings = self._rest.get(KMS, f"v1/{name}:getIamPolicy").get("bindings", ())
            held = {member for one in bindings if one["role"] == KEY_USER for member in one["members"]}
            services = key_users(key_services(self._config, self._planned))
            agents = {service: agent_member(service, number) for service in services}
            if missing := [member for member in agents.values() if member not in held]:
                fix = f"have its owner grant {KEY_USER}, unless they have it on the key ring or the project"
                return Result.warning(f"no grant on the key itself for {', '.join(missing)}", fix)
            return Result.ok(f"{len(agents)} service agents may use it")

        source = "cloudkms.projects.locations.keyRings.cryptoKeys.getIamPolicy"
        return self._check("kms_key", name, source, run, "users of")

    def account(self, key: str, email: str) -> Check:
        path = f"v1/projects/-/serviceAccounts/{email}"

        def run() -> Result:
            disabled = self._rest.get(IAM, path).get("disabled", False)
            facts = Facts(disabled_accounts=frozenset({email} if disabled else ()))
            asked = {"permissions": ["iam.serviceAccounts.actAs"]}
            if not self._rest.post(IAM, f"{path}:testIamPermissions", asked).get("permissions"):
                return Result.error("you lack iam.serviceAccounts.actAs", "ask for roles/iam.serviceAccountUser on it")
            return self._judge(facts, "enabled, and you may use it")

        return self._check(key, email, "iam.projects.serviceAccounts.get", run)

    def repository(self, name: str) -> Check:
        def run() -> Result:
            row = self._rest.get("artifactregistry.googleapis.com", f"v1/{name}")
            immutable = row.get("dockerConfig", {}).get("immutableTags", False)
            facts = RepositoryFacts(row.get("format"), row.get("mode"), immutable)
            return self._judge(Facts(repository=facts), str(facts.format))

        return self._check("repository", name, "artifactregistry.projects.locations.repositories.get", run)

    def bucket(self, name: str) -> Check:
        def run() -> Result:
            row = self._rest.get("storage.googleapis.com", f"storage/v1/b/{name}")
            location, policy = str(row["location"]), row.get("retentionPolicy", {})
            facts = BucketFacts(location, int(policy.get("retentionPeriod", 0)))
            result = self._judge(Facts(bucket=facts), f"in {location.lower()}")
            if result.state is State.OK and not row.get("versioning", {}).get("enabled", False):
                return Result.warning("without versioning: a record that is overwritten is lost", "have it turned on")
            return result

        return self._check("run_bucket", name, "storage.buckets.get", run)

    def log_bucket(self, name: str) -> Check:
        def run() -> Result:
            row = self._rest.get("logging.googleapis.com", f"v2/{name}")
            facts = LogBucketFacts(row.get("lifecycleState"), row.get("retentionDays"))
            return self._judge(Facts(log_bucket=facts), f"keeps lines for {facts.days} days")

        return self._check("log_bucket", name, "logging.projects.locations.buckets.get", run)


def _lustre(row: Mapping[str, Any]) -> FileSystemFacts:
    throughput = row.get("perUnitStorageThroughput")
    return FileSystemFacts(
        network=row.get("network"),
        state=row.get("state"),
        capacity_gib=int(row["capacityGib"]),
        throughput_mbps_per_tib=None if throughput is None else int(throughput),
    )


def _filestore(row: Mapping[str, Any]) -> FileSystemFacts:
    (share,) = row["fileShares"]
    return FileSystemFacts(
        network=row["networks"][0]["network"],
        state=row.get("state"),
        capacity_gib=int(share["capacityGb"]),
        squashes_root=any(one.get("squashMode") == "ROOT_SQUASH" for one in share.get("nfsExportOptions", ())),
    )


def agent_member(service: str, number: str) -> str:
    """The service agent that uses a key, as a member of an IAM policy."""
    if service in _OTHER_AGENTS:
        return _OTHER_AGENTS[service].format(number)
    return get_agent(service, number)


def _judge_api_route(routes: Sequence[Mapping[str, Any]]) -> Result:
    """With endpoints: a route to the restricted addresses of Google's APIs over Google's gateway."""
    wanted = IPv4Network(RESTRICTED_API_RANGE)
    for row in routes:
        gateway = str(row.get("nextHopGateway", "")).endswith("/default-internet-gateway")
        if gateway and _covers(row["destRange"], wanted):
            return Result.ok(f"{row['destRange']} over Google's gateway")
    fix = f"have a route made to {RESTRICTED_API_RANGE} with the next hop default-internet-gateway"
    return Result.error(f"no route leads to {RESTRICTED_API_RANGE}, where restricted.googleapis.com is", fix)


def _judge_nat(routes: Sequence[Mapping[str, Any]], nats: Sequence[Mapping[str, Any]], subnetwork: str) -> Result:
    """With NAT: a default route, and Cloud NAT unless the route leads elsewhere, such as to a firewall or a hub."""
    defaults = [row for row in routes if row["destRange"] == _TO_ALL]
    if not defaults:
        return Result.error(f"no route leads to {_TO_ALL}", "have a default route made, or set egress: endpoints")
    if not any("nextHopGateway" in row for row in defaults):
        return Result.ok("the default route leads to a next hop of the network's own")
    every = ("ALL_SUBNETWORKS_ALL_IP_RANGES", "ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES")
    for nat in nats:
        listed = [full_name(one["name"]) for one in nat.get("subnetworks", ())]
        if nat.get("sourceSubnetworkIpRangesToNat") in every or subnetwork in listed:
            return Result.ok(f"Cloud NAT {nat['name']}")
    fix = "have its owner add the subnetwork to Cloud NAT, or set gangway:network.egress: endpoints"
    return Result.error("no Cloud NAT in the region translates the subnetwork's addresses", fix)


def allows(
    rule: Mapping[str, Any], flow: Flow, tags: Mapping[str, str], accounts: Mapping[str, str], machines: IPv4Network
) -> bool:
    """Whether a firewall rule allows a connection. `machines`: the range of the network's machines."""
    if rule.get("direction", "INGRESS") != "INGRESS" or rule.get("disabled", False) or "allowed" not in rule:
        return False
    targets = (*rule.get("targetTags", ()), *rule.get("targetServiceAccounts", ()))
    if targets and not {tags[flow.target], accounts[flow.target]} & set(targets):
        return False
    from_machines = flow.source in tags
    source = machines if from_machines else IPv4Network(flow.source)
    by_range = any(_covers(one, source) for one in rule.get("sourceRanges", ()))
    names = (*rule.get("sourceTags", ()), *rule.get("sourceServiceAccounts", ()))
    by_name = from_machines and bool({tags[flow.source], accounts[flow.source]} & set(names))
    return (by_range or by_name) and any(_opens(one, flow) for one in rule["allowed"])


def _covers(outer: str, inner: IPv4Network) -> bool:
    network = ip_network(outer)
    return isinstance(network, IPv4Network) and inner.subnet_of(network)


def _opens(allowed: Mapping[str, Any], flow: Flow) -> bool:
    """Whether one entry of `allowed` covers protocol and ports."""
    if allowed["IPProtocol"] == "all":
        return True
    if allowed["IPProtocol"] != flow.protocol:
        return False
    if "ports" not in allowed:
        return True
    spans = [one.partition("-") for one in allowed["ports"]]
    return all(any(int(low) <= port <= int(high or low) for low, _, high in spans) for port in flow.ports)
