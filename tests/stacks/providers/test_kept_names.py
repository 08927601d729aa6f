"""What `destroy` can leave behind under a fixed name is looked for before the first resource of another stack."""

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pulumi
import pytest

from gangway.components.core.findings import InputError
from gangway.components.core.retention import Retention
from gangway.stacks import recording
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.rule import kind
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.program import build
from gangway.stacks.recording import PlaceholderCloud, PlannedResource, record

REPOSITORY = Path(__file__).resolve().parents[3]
STACKS = sorted(file.stem.removeprefix("Pulumi.") for file in (REPOSITORY / "stacks").glob("Pulumi.*.yaml"))
QUICK = ("aws-demo", "azure-nc-dev", "gcp-a3-spot", "openstack-gpu")
SERVICES = {"aws": "aws.Aws", "gcp": "gcp.Gcp", "azure-native": "azure.Azure", "openstack": "openstack.Openstack"}
SHARED = {
    "aws:costexplorer:CostAllocationTag": "of the account: activating it again changes nothing",
    "gcp:projects:Service": "of the project: enabling it again changes nothing",
}
FREE: dict[str, Any] = {
    "aws:iam/getRoles:getRoles": {"names": []},
    "gcp:secretmanager/getSecrets:getSecrets": {"secrets": []},
    "gcp:serviceaccount/getS:getS": {"accounts": []},
    "openstack:networking/getPortIds:getPortIds": {"ids": []},
    "openstack:networking/getSubnetIdsV2:getSubnetIdsV2": {"ids": []},
}
"""What an empty account answers."""
ALIAS, NO_ALIAS = "aws:kms/getAlias:getAlias", "reading KMS Alias: empty result"
TAGS = "aws:resourcegroupstaggingapi/getResources:getResources"


class Account(PlaceholderCloud):
    """Records the arguments of all lookups. `key`: of the alias that is asked for; None if there is none."""

    def __init__(self, key: str | None = None, refused: str = "") -> None:
        self.asked: list[Any] = []
        self.declared: list[str] = []
        self._key, self._refused = key, refused

    def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if not type_token.startswith("pulumi:providers:"):
            self.declared.append(type_token)
        return super().__call__(type_token, name, inputs)

    def ask(self, function: str, args: Mapping[str, Any]) -> Any:
        self.asked += args.values()
        if function == self._refused:
            return {}, [("", "AccessDenied")]
        if function == ALIAS:
            return {"targetKeyArn": self._key} if self._key else ({}, [("", NO_ALIAS)])
        if function == TAGS:
            tags = {"team": "speech", "cost_center": "12"}
            return {"resourceTagMappingLists": [{"resourceArn": self._key, "tags": tags}]}
        return FREE[function] if function in FREE else super().ask(function, args)


@pytest.fixture(autouse=True)
def first_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A stack without resources in a subscription without any. Returns the warnings."""
    warned: list[str] = []
    monkeypatch.setattr(recording, "_BUILT", {})
    monkeypatch.setattr("gangway.stacks.providers.azure.lookups.get_json", lambda *_: {"value": []})
    monkeypatch.setattr(pulumi, "warn", warned.append)
    return warned


@pytest.fixture(scope="module")
def services() -> Iterator[Mapping[str, Any]]:
    """The engine tests' stand-ins by package, which know how a cloud makes names."""
    sys.path.insert(0, str(REPOSITORY / "tests/engine"))
    try:
        names = {package: path.split(".") for package, path in SERVICES.items()}
        yield {each: getattr(import_module(f"standin.{module}"), name)() for each, (module, name) in names.items()}
    finally:
        sys.path.remove(str(REPOSITORY / "tests/engine"))


def read(stack: str, encryption: str) -> StackConfig:
    return from_file(REPOSITORY / f"stacks/Pulumi.{stack}.yaml").model_copy(update={"encryption": encryption})


def kept(resources: tuple[PlannedResource, ...], retention: Retention) -> set[str]:
    """The URNs that can outlive a `destroy`: retained ones, and undeletable data with what it needs."""
    by_urn = {one.urn: one for one in resources}
    data = {one.urn for one in resources if kind(one.type) in retention.data and not retention.is_scratch(one.inputs)}
    stay = {one.urn for one in resources if one.is_retained}
    grants = {one.urn for one in resources if kind(one.type) in retention.key_grants or one.deleted_with in data}
    todo = [*(data | grants if retention.refuses and data else ())]
    while todo:
        urn = todo.pop()
        if urn in by_urn and urn not in stay:
            stay.add(urn)
            todo += by_urn[urn].dependencies
    return stay


def fixed_name(one: PlannedResource, services: Mapping[str, Any]) -> str:
    """Its id if another stack of this identity would get the same one, and it is no part of another resource."""
    service = services.get(one.type.partition(":")[0])
    if service is None or not one.custom or kind(one.type) in SHARED:
        return ""
    try:
        ids = {str(service.identify(one.type, one.name, one.inputs)) for _ in range(2)}
    except KeyError:  # the plugin adds random digits
        return ""
    return ids.pop() if len(ids) == 1 and "${" not in next(iter(ids)) else ""


@pytest.mark.slow
@pytest.mark.parametrize("encryption", ["provider-key", "customer-key"])
@pytest.mark.parametrize(
    "stack", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in STACKS]
)
def test_every_kept_name_is_looked_for(stack: str, encryption: str, services: Mapping[str, Any]) -> None:
    config, account = read(stack, encryption), Account()
    try:
        resources = record(lambda: build(config), account, stack).resources
    except InputError:
        pytest.skip("this stack takes no key of its own")
    stay = kept(resources, get_provider(config.provider).retention)
    names = {fixed_name(one, services) for one in resources if one.urn in stay} - {""}
    assert names <= {each for each in account.asked if isinstance(each, str)}
    # An existing key has the alias of its owner.
    has_alias = config.provider == "aws" and encryption == "customer-key" and stack != "aws-existing"
    assert names == ({f"alias/{stack}-data"} if has_alias else set())


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["aws-demo", "eks-p5-kueue"])
def test_a_key_that_a_destroyed_stack_left_is_refused(stack: str) -> None:
    """Also if roles may not be listed."""
    for refused, team in (("", "team speech"), ("aws:iam/getRoles:getRoles", "team speech"), (TAGS, "no team")):
        account = Account("arn:aws:kms:us-east-2:123456789012:key/k", refused)
        with pytest.raises(InputError, match="or was destroyed and left its run records") as caught:
            record(lambda: build(read(stack, "customer-key")), account, stack)
        text = str(caught.value)
        assert f"KMS key alias/{stack}-data" in text
        assert team in text
        assert f"pulumi config set gangway:identity {stack}-2" in text
        assert "its next `up` uses the run bucket and key again" in text
        assert "delete" not in text
        assert account.declared == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "function"),
    [
        ("aws-demo", ALIAS),
        ("aws-demo", "aws:iam/getRoles:getRoles"),
        ("openstack-gpu", "openstack:networking/getSubnetIdsV2:getSubnetIdsV2"),
    ],
)
def test_a_missing_permission_is_a_warning(stack: str, function: str, first_up: list[str]) -> None:
    account = Account(refused=function)
    encryption = "customer-key" if stack == "aws-demo" else "provider-key"
    record(lambda: build(read(stack, encryption)), account, stack)
    (warning,) = (text for text in first_up if "cannot check whether another stack has the identity" in text)
    assert "AccessDenied" in warning
    assert account.declared


def test_a_subnet_names_its_stack_on_openstack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FREE, "openstack:networking/getSubnetIdsV2:getSubnetIdsV2", {"ids": ["s-1"]})
    words = ["cost_center=12", "gangway:stack=openstack-gpu", "team=speech"]
    monkeypatch.setitem(FREE, "openstack:networking/getSubnet:getSubnet", {"allTags": words})
    account = Account()
    with pytest.raises(InputError, match="another stack of this identity is up") as caught:
        record(lambda: build(read("openstack-gpu", "provider-key")), account, "openstack-gpu")
    assert "subnet s-1 (team speech, cost_center 12)" in str(caught.value)
    assert ["gangway:stack=openstack-gpu"] in account.asked
    assert account.declared == []
