"""Whose an identity is: a renamed stack is refused, and so is one that is called like another that is up."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from gangway.components.core.findings import InputError
from gangway.components.core.lookup import STASH, Lookup
from gangway.components.gcp.network import plan_network
from gangway.stacks.base.ownership import (
    Owner,
    built_identities,
    check_addresses,
    check_encryption,
    check_identity,
    check_unclaimed,
    own_state,
)
from gangway.stacks.config.stack_config import StackConfig

State = Mapping[str, str]
"""URN without its beginning -> type."""
UP = {"pulumi:providers:aws::demo": "pulumi:providers:aws", "aws:ec2/vpc:Vpc::demo-vpc": "aws:ec2/vpc:Vpc"}
REFUSED = {"pulumi:providers:aws::demo": "pulumi:providers:aws", "gangway:aws:Network::demo": "gangway:aws:Network"}
BUILT = "10.42.0.0/16"
SOMEBODY = Owner("IAM role demo-node-1234567", {"team": "speech", "cost_center": "12", "gangway:stack": "demo"})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Sets what the engine's state holds; returns the stacks that are asked for. `failures`: readings that fail."""

    def hold(state: State, organization: str = "organization", failures: int = 0) -> list[str]:
        asked: list[str] = []

        def invoke(_function: str, args: Mapping[str, Any]) -> Any:
            asked.append(args["stackName"])
            if len(asked) <= failures:
                raise Exception("failed to load checkpoint: EOF")
            outputs = {"output": {"encryption": "customer-key"}}
            found = {
                f"urn:pulumi:dev::vision::{urn}": {"type": type_, "outputs": outputs} for urn, type_ in state.items()
            }
            return SimpleNamespace(value={"outputs": found})

        monkeypatch.setattr(pulumi.runtime, "invoke", invoke)
        for name, value in (("organization", organization), ("project", "vision"), ("stack", "dev")):
            monkeypatch.setattr(pulumi, f"get_{name}", lambda value=value: value)
        monkeypatch.setattr("time.sleep", lambda _: None)
        return asked

    return hold


def called(config: StackConfig, identity: str) -> StackConfig:
    return config.model_copy(update={"stack": identity, "stack_name": "dev"})


@pytest.mark.parametrize("state", [{}, REFUSED])
def test_a_stack_without_resources_has_no_identity_yet(
    engine: Callable[..., Any], demo_config: StackConfig, state: State
) -> None:
    engine(state)
    assert built_identities(own_state()) == frozenset()
    check_identity(called(demo_config, "any"), own_state())


def test_a_built_stack_keeps_its_identity(engine: Callable[..., Any], demo_config: StackConfig) -> None:
    engine({**UP, "pulumi:providers:pulumi::default": "pulumi:providers:pulumi"})
    check_identity(called(demo_config, "demo"), own_state())
    check_unclaimed(called(demo_config, "demo"), lambda: pytest.fail("it asks the cloud, although the stack is up"))
    with pytest.raises(InputError) as refused:
        check_identity(called(demo_config, "vision-dev-e71014"), own_state())
    mistake = refused.value
    assert mistake.place == "stack dev: gangway:identity"
    assert (mistake.value, mistake.allowed) == ("vision-dev-e71014", "demo")
    assert "pulumi config set gangway:identity demo" in mistake.fix


def test_another_stack_of_the_identity_is_named_and_never_proposed_for_deletion(
    engine: Callable[..., Any], demo_config: StackConfig
) -> None:
    engine(REFUSED)
    with pytest.raises(InputError, match="another stack of this identity is up") as refused:
        check_unclaimed(called(demo_config, "demo"), lambda: SOMEBODY)
    assert "IAM role demo-node-1234567 (team speech, cost_center 12)" in str(refused.value)
    assert "delete" not in str(refused.value)
    check_unclaimed(called(demo_config, "demo"), lambda: None)


def test_a_cloud_that_does_not_let_us_look_is_a_warning(
    engine: Callable[..., Any], demo_config: StackConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine({})
    warned: list[str] = []
    monkeypatch.setattr(pulumi, "warn", warned.append)

    def refuse() -> None:
        raise Lookup("the roles", "the account", "gangway:identity", "log in").failed("AccessDenied: iam:ListRoles")

    check_unclaimed(called(demo_config, "demo"), refuse)
    (text,) = warned
    assert "AccessDenied: iam:ListRoles" in text

    def our_bug() -> None:
        raise TypeError("ours")

    with pytest.raises(TypeError, match="ours"):
        check_unclaimed(called(demo_config, "demo"), our_bug)


@pytest.mark.parametrize(("organization", "name"), [("organization", "dev"), ("acme", "acme/vision/dev")])
def test_a_state_that_is_being_written_is_read_again_by_the_backends_name(
    engine: Callable[..., list[str]], organization: str, name: str
) -> None:
    asked = engine(UP, organization, failures=3)
    assert built_identities(own_state()) == {"demo"}
    assert asked == [name] * 4
    engine(UP, failures=99)
    with pytest.raises(pulumi.RunError, match="the state of stack dev cannot be read: failed to load checkpoint"):
        own_state()


def test_the_key_that_a_stack_was_made_with_stays(engine: Callable[..., Any], demo_config: StackConfig) -> None:
    engine({f"{STASH}::demo-encryption-0": STASH, f"{STASH}::other-encryption-0": STASH})

    def check(identity: str, encryption: str) -> None:
        config = called(demo_config, identity).model_copy(update={"encryption": encryption})
        check_encryption(config, own_state())

    check("demo", "customer-key")
    check("unbuilt", "provider-key")
    with pytest.raises(InputError, match="cannot be changed") as refused:
        check("demo", "provider-key")
    assert refused.value.fix.startswith("set encryption: customer-key")


@pytest.mark.parametrize(
    ("name", "type_", "outputs"),
    [
        ("demo-vpc", "aws:ec2/vpc:Vpc", {"cidrBlock": BUILT}),
        (
            "demo-network",
            "azure-native:network:VirtualNetwork",
            {"addressSpace": {"addressPrefixes": [BUILT]}},
        ),
        (
            "demo-private",
            "gcp:compute/subnetwork:Subnetwork",
            {"ipCidrRange": plan_network(BUILT).private_cidr},
        ),
    ],
)
def test_a_network_in_use_keeps_its_addresses(
    demo_config: StackConfig, name: str, type_: str, outputs: Mapping[str, Any]
) -> None:
    state = {f"urn:pulumi:dev::vision::{type_}::{name}": {"type": type_, "outputs": outputs}}

    def with_cidr(cidr: str) -> StackConfig:
        network = demo_config.network.model_copy(update={"cidr": cidr})
        return called(demo_config, "demo").model_copy(update={"network": network})

    check_addresses(with_cidr(BUILT), state)
    for other in ("10.99.0.0/16", "10.42.0.0/18"):
        check_addresses(with_cidr(other), {})
        with pytest.raises(InputError, match=r"network\.cidr") as refused:
            check_addresses(with_cidr(other), state)
        assert "pulumi destroy" in refused.value.fix
