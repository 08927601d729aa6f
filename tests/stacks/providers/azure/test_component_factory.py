"""The password for pushing images: requested from the registry, but not in a plan."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from gangway.components.azure.api import API_URL
from gangway.stacks.providers.azure import component_factory
from gangway.stacks.providers.azure.component_factory import push_password
from gangway.stacks.recording import PlaceholderCloud, record

HOST = "azurendv5spot1a2b3c4d.azurecr.io"


@pytest.fixture
def password() -> Callable[[str], Any]:
    """What a program gets for a registry of that host."""

    def ask(host: str) -> Any:
        def program() -> dict[str, Any]:
            made = push_password(pulumi.Output.from_input(host), pulumi.Output.from_input("arm-token"))
            return {"password": made, "secret": pulumi.Output.from_input(made.is_secret())}

        return record(program, PlaceholderCloud(), "test").result

    return ask


def test_a_registry_gives_its_own_token_for_azures(
    password: Callable[[str], Any], azure_vm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(API_URL, azure_vm.url)
    assert password(HOST) == {"password": f"refresh-{HOST}", "secret": True}
    (call,) = azure_vm.calls
    assert (call.method, call.path) == ("POST", f"/{HOST}/oauth2/exchange")
    assert call.body == f"grant_type=access_token&service={HOST}&access_token=arm-token".encode()


def test_a_plan_sends_no_request(
    password: Callable[[str], Any], azure_vm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(API_URL, azure_vm.url)
    assert password("${Registry.demo.loginServer}")["password"] == ""
    assert azure_vm.calls == []


@pytest.mark.parametrize(("answer", "asked"), [((403, b"no"), 1), ((404, b"who?"), 3), ((200, b"{}"), 3)])
def test_a_refused_password_is_reported_with_a_fix(
    password: Callable[[str], Any],
    azure_vm: Any,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, bytes],
    asked: int,
) -> None:
    """One that is new may not be known at once, and is asked again; one that refuses will refuse."""
    monkeypatch.setenv(API_URL, azure_vm.url)
    monkeypatch.setattr(component_factory, "PAUSES_SEC", (0.0, 0.0))
    monkeypatch.setattr(azure_vm, "api", lambda call: answer)
    with pytest.raises(pulumi.RunError, match=f"from {HOST} .*; run `az login` as a user with the role AcrPush"):
        password(HOST)
    assert len(azure_vm.calls) == asked
