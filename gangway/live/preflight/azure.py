"""Checks of a stack on Azure: providers, features, quotas, sizes, images, permissions, accounts, names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gangway.components.azure.launch import Image
from gangway.components.core.capacity import LADDER, Reservation, named_zones
from gangway.components.core.http_session import open_session
from gangway.components.core.limits import QuotaFinding, QuotaNeed
from gangway.components.core.safe_text import kql_text
from gangway.live.permissions.needs import actions_of_up
from gangway.live.preflight.azure_existing import HOST, existing_checks
from gangway.live.preflight.check import OFFERS_FIX, ROLE_FIX, Check, NoAnswerError, Result, compare_quota, conflicts
from gangway.live.preflight.rest import Rest
from gangway.stacks.base.rule import kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.program import get_program
from gangway.stacks.providers.azure.plan import AzurePlan, head_type
from gangway.stacks.providers.azure.settings import AzureConfig

COMPUTE, SKUS, RESOURCES, FEATURES = "2024-07-01", "2021-07-01", "2021-04-01", "2021-07-01"
AUTHORIZATION, STORAGE, REGISTRY, GRAPH = "2022-04-01", "2023-05-01", "2023-07-01", "2024-04-01"
"""Versions of the APIs."""
NAMESPACES: Mapping[str, str] = {
    "applicationinsights": "Insights",
    "compute": "Compute",
    "consumption": "Consumption",
    "containerregistry": "ContainerRegistry",
    "containerservice": "ContainerService",
    "keyvault": "KeyVault",
    "logic": "Logic",
    "managedidentity": "ManagedIdentity",
    "monitor": "Insights",
    "network": "Network",
    "operationalinsights": "OperationalInsights",
    "privatedns": "Network",
    "storage": "Storage",
    "storagecache": "StorageCache",
    "virtualmachineimages": "VirtualMachineImages",
}
"""By module of the SDK: the resource provider, after `Microsoft.`; those that need registration."""
_MISSING = "404"


def get_checks(plan: Plan, rest: Rest | None = None) -> list[Check]:
    """All checks of a stack. InputError: no credentials."""
    config = plan.config
    planned: AzurePlan = get_program("azure").plan(config)
    stack = _Stack(plan, config, planned, rest or Rest(open_session(planned.subscription_id)))
    needs = [one.need for one in plan.findings if isinstance(one, QuotaFinding)]
    return [
        _permissions(stack),
        *_providers(stack),
        *_features(stack),
        *(_quota(stack, need) for need in needs),
        *_sizes(stack),
        *_reservations(stack),
        *_image(stack),
        *_accounts(stack),
        _names(stack),
        *existing_checks(config, planned, stack.rest),
    ]


@dataclass(frozen=True)
class _Stack:
    plan: Plan
    config: StackConfig
    planned: AzurePlan
    rest: Rest

    def get(self, path: str, version: str, **params: str) -> Any:
        """The answer for a path below the subscription."""
        whole = f"subscriptions/{self.planned.subscription_id}/{path}"
        return self.rest.get(HOST, whole, {"api-version": version, **params})

    @property
    def modules(self) -> list[str]:
        """The kinds of resources without the package: `compute:VirtualMachine`."""
        kinds = {kind(resource.type) for resource in self.plan.resources}
        return sorted(each.removeprefix("azure-native:") for each in kinds if each.startswith("azure-native:"))


def _permissions(stack: _Stack) -> Check:
    needed = actions_of_up(stack.plan)

    def run() -> Result:
        rows = stack.get("providers/Microsoft.Authorization/permissions", AUTHORIZATION)["value"]
        if missing := [action for action in needed if not any(_allows(row, action) for row in rows)]:
            return Result.error(f"missing: {', '.join(missing)}", ROLE_FIX)
        return Result.ok(f"you have all {len(needed)} permissions of `up` in the subscription")

    return Check("permissions", "authorization.permissions.list", run)


def _allows(row: Mapping[str, Any], action: str) -> bool:
    """Whether one role allows an action; roles add up."""

    def matches(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)

    return matches(row.get("actions") or ()) and not matches(row.get("notActions") or ())


def _providers(stack: _Stack) -> Iterator[Check]:
    names = {NAMESPACES[module] for each in stack.modules if (module := each.split(":")[0]) in NAMESPACES}
    # Image Builder runs in a container of the subscription ("Isolated Image Builds").
    for name in sorted(names | ({"ContainerInstance"} if "VirtualMachineImages" in names else set())):
        yield _state(
            stack, f"resource provider Microsoft.{name}", f"providers/Microsoft.{name}", RESOURCES,
            f"az provider register --namespace Microsoft.{name}",
        )  # fmt: skip


def _features(stack: _Stack) -> Iterator[Check]:
    if stack.planned.security.encryption_at_host:
        fix = "az feature register --namespace Microsoft.Compute --name EncryptionAtHost, then az provider register "
        yield _state(
            stack, "feature EncryptionAtHost", "providers/Microsoft.Features/providers/Microsoft.Compute/features/"
            "EncryptionAtHost", FEATURES, f"{fix}--namespace Microsoft.Compute; or set encryption_at_host: false",
        )  # fmt: skip


def _state(stack: _Stack, subject: str, path: str, version: str, fix: str) -> Check:
    def run() -> Result:
        answer = stack.get(path, version)
        # Features have it below `properties`.
        state = answer.get("registrationState") or answer.get("properties", {}).get("state", "no state")
        return Result.ok(state) if state == "Registered" else Result.error(state, fix)

    is_feature = "/features/" in path
    return Check(subject, "features.get" if is_feature else "resources.providers.get", run)


def _quota(stack: _Stack, need: QuotaNeed) -> Check:
    def run() -> Result:
        path = f"providers/Microsoft.Compute/locations/{stack.planned.region.name}/usages"
        rows = stack.get(path, COMPUTE)["value"]
        # The catalogue has some quotas by `value` only.
        row = next((one for one in rows if need.key in one["name"].values()), None)
        if row is None:
            raise NoAnswerError(f"Azure does not list {need.key!r} here", need.command)
        fix = f"request {need.key} in the portal: Subscriptions, Usage + quotas"
        return compare_quota(need.amount, row["limit"], row["currentValue"], need.unit, fix)

    return Check(f"quota {need.name} in {need.place}", "compute.usage.list", run, need.path)


def _sizes(stack: _Stack) -> Iterator[Check]:
    planned = stack.planned
    zones = {zone for rung in stack.config.cluster.capacity for zone in named_zones(rung)} | {planned.nodes_zone}
    yield _size(stack, planned.machine.name, sorted(zones - {""}), "gangway:cluster.zone")
    if planned.head:
        yield _size(stack, head_type(stack.config), [], "gangway:head.machine_type")


def _size(stack: _Stack, name: str, zones: Sequence[str], path: str) -> Check:
    region = stack.planned.region.name

    def run() -> Result:
        rows = stack.get("providers/Microsoft.Compute/skus", SKUS, **{"$filter": f"location eq '{region}'"})["value"]
        row = next((one for one in rows if one["name"] == name and one["resourceType"] == "virtualMachines"), None)
        if row is None:
            return Result.error(f"{region} has no {name}", OFFERS_FIX)
        refused = [one for one in row.get("restrictions") or () if one["type"] == "Location"]
        if refused:
            reason = refused[0].get("reasonCode", "")
            return Result.error(f"not for this subscription: {reason}", "request it: Subscriptions, Usage + quotas")
        closed = {zone for one in row.get("restrictions") or () for zone in one["restrictionInfo"].get("zones") or ()}
        offered = sorted({zone for one in row["locationInfo"] for zone in one.get("zones") or ()} - closed)
        answer = f"offered in {region}, zones {', '.join(offered) or 'none'}"
        if missing := [zone for zone in zones if zone not in offered]:
            fix = f"set gangway:cluster.zone: {offered[0]}" if offered else "remove gangway:cluster.zone"
            return Result.error(f"not in zone {', '.join(missing)}; {answer}", fix)
        return Result.ok(answer)

    return Check(f"machine type {name}", "compute.resourceSkus.list", run, path)


def _reservations(stack: _Stack) -> Iterator[Check]:
    for index, rung in enumerate(stack.config.cluster.capacity):
        if isinstance(rung, Reservation):
            yield _exists(stack, "capacity reservation group", rung.id, COMPUTE, f"{LADDER}[{index}]")


def _image(stack: _Stack) -> Iterator[Check]:
    image, region = stack.planned.image, stack.planned.region.name
    if image.id is not None:
        version = "2024-03-03" if "/galleries/" in image.id.lower() else COMPUTE
        yield _exists(stack, "machine image", image.id, version, "gangway:cluster.image_id")
    if image.publisher is not None:
        yield _marketplace(stack, image, region)


def _marketplace(stack: _Stack, image: Image, region: str) -> Check:
    urn = f"{image.publisher}:{image.offer}:{image.sku}:{image.version}"
    path = (
        f"providers/Microsoft.Compute/locations/{region}/publishers/{image.publisher}/artifacttypes/vmimage/offers/"
        f"{image.offer}/skus/{image.sku}/versions"
    )

    def run() -> Result:
        show = f"az vm image list --all --location {region} --publisher {image.publisher} --offer {image.offer}"
        try:
            versions = [row["name"] for row in stack.get(path, COMPUTE)]
        except NoAnswerError as refusal:
            if refusal.code != _MISSING:
                raise
            return Result.error(f"not in {region}", show)
        if not versions or not (image.floats or image.version in versions):
            return Result.error(f"no such version; there are {', '.join(versions[-5:]) or 'none'}", show)
        return Result.ok(f"newest {versions[-1]}" if image.floats else "exists")

    return Check(f"machine image {urn}", "compute.virtualMachineImages.list", run, "gangway:cluster.image_id")


def _accounts(stack: _Stack) -> Iterator[Check]:
    own = stack.config.section(AzureConfig)
    if stack.planned.source is not None and own.source_account_id is not None:
        yield _exists(stack, "data account", own.source_account_id, STORAGE, "gangway:azure.source_account_id")
        container = f"{own.source_account_id}/blobServices/default/containers/{stack.planned.source.container}"
        yield _exists(stack, "data container", container, STORAGE, "gangway:storage.source")
    if stack.planned.registry_id is not None:
        yield _exists(stack, "registry", stack.planned.registry_id, REGISTRY, "gangway:azure.registry_id")


def _exists(stack: _Stack, what: str, resource_id: str, version: str, path: str) -> Check:
    def run() -> Result:
        try:
            row = stack.rest.get(HOST, resource_id.strip("/"), {"api-version": version})
        except NoAnswerError as refusal:
            if refusal.code == _MISSING:
                return Result.error("does not exist", f"correct {path}")
            raise
        return Result.ok(f"exists{', in ' + row['location'] if row.get('location') else ''}")

    return Check(f"{what} {resource_id.rpartition('/')[2]}", "GET of the resource", run, path)


def _names(stack: _Stack) -> Check:
    name = stack.config.stack

    def run() -> Result:
        query = f"Resources | where tags[{kql_text('gangway-stack')}] =~ {kql_text(name)} | project name | limit 100"
        body = {"subscriptions": [stack.planned.subscription_id], "query": query}
        path = "providers/Microsoft.ResourceGraph/resources"
        rows = stack.rest.post(HOST, path, body, {"api-version": GRAPH})["data"]
        why = "this stack is up, it left what it keeps, or another stack has its identity"
        return conflicts([row["name"] for row in rows], why, stack.config.stack_name)

    return Check(f"resources with the tag {name}", "resourceGraph.resources", run, "gangway:identity")
