"""Whose calls a stack's nodes are asked by, and where they go."""

from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.jobs.systemd.autoscale_now import get_scaler, group_names
from gangway.jobs.systemd.scaling.aws import AwsScaler
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.program import get_program


class Nobody:
    """A session for which nothing is there."""

    status_code, text = 404, "{}"

    def __init__(self) -> None:
        self.urls: list[str] = []

    def request(self, method: str, url: str, **_: Any) -> "Nobody":
        self.urls.append(f"{method} {url}")
        return self


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Nobody:
    """Logged in at both clouds."""
    made = Nobody()
    monkeypatch.setattr("gangway.sessions.open_session", lambda _: made)
    monkeypatch.setattr("gangway.components.gcp.tpu.api.open_session", lambda _: made)
    return made


def test_on_aws_it_is_the_stacks_region(demo_config: StackConfig) -> None:
    names = group_names(demo_config, {"group_names": ["demo-0"]})
    assert isinstance(get_scaler(demo_config, {}, names, is_held=False), AwsScaler)
    with pytest.raises(InputError, match="the stack is not up"):
        group_names(demo_config, {"group_names": None})


def test_on_azure_it_is_the_stacks_resource_group(azure_configs: dict[str, StackConfig], nobody: Nobody) -> None:
    config = azure_configs["azure-ndv5-spot"]
    scaler = get_scaler(config, {"resource_group": "demo-rg"}, ["demo-0"], is_held=False)
    with pytest.raises(InputError, match="does not exist"):
        scaler.get_groups(["demo-0"])
    place = f"/subscriptions/{get_program('azure').plan(config).subscription_id}/resourceGroups/demo-rg/providers"
    assert nobody.urls == [f"GET https://management.azure.com{place}/Microsoft.Compute/virtualMachineScaleSets/demo-0"]


def test_on_google_it_is_the_stacks_project_and_each_rungs_zone(
    gcp_configs: dict[str, StackConfig], nobody: Nobody
) -> None:
    config = gcp_configs["gcp-a3-spot"]
    planned, names = get_program("gcp").plan(config), [f"demo-{rung}" for rung in range(len(config.cluster.capacity))]
    scaler = get_scaler(config, {}, names, is_held=False)
    with pytest.raises(InputError, match="does not exist"):
        scaler.get_groups(names)
    place = f"projects/{planned.project}/zones/{planned.zone}/instanceGroupManagers/demo-0"
    assert nobody.urls == [f"GET https://compute.googleapis.com/compute/v1/{place}"]
