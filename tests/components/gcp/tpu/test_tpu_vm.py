"""TpuVm: one slice from Google's own provider, closed and labelled, with what it declares against the TPU API."""

import json
from importlib.resources import files
from typing import Any

import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.core.findings import InputError
from gangway.components.gcp.pricing import price_resources
from gangway.components.gcp.tpu.tpu_vm import TpuVm
from tests.components.fixture_types import Make


@pytest.fixture
def vm(make: Make, labels: dict[str, str]) -> Make:
    """Declares a slice with changes; None takes an argument out."""

    def run(**changes: Any) -> Any:
        args: dict[str, Any] = {
            "project": "lab",
            "zone": "us-west4-a",
            "accelerator_type": "v5litepod-4",
            "runtime_version": "v2-alpha-tpuv5-lite",
            "tier": "on-demand",
            "service_account": "nodes@lab.iam.gserviceaccount.com",
            "labels": labels,
            **changes,
        }
        return make(TpuVm, {key: value for key, value in args.items() if value is not None})

    return run


def test_one_closed_slice(vm: Make, labels: dict[str, str]) -> None:
    inputs = vm(subnetwork="main", network_tags=["demo-fabric"], startup_script="#!/bin/sh\n").one("V2Vm").inputs
    assert (inputs["acceleratorType"], inputs["runtimeVersion"]) == ("v5litepod-4", "v2-alpha-tpuv5-lite")
    assert (inputs["project"], inputs["zone"]) == ("lab", "us-west4-a")
    assert inputs["networkConfig"] == {"subnetwork": "main", "enableExternalIps": False}
    assert inputs["serviceAccount"]["email"] == "nodes@lab.iam.gserviceaccount.com"
    assert inputs["metadata"] == {"startup-script": "#!/bin/sh\n"}
    assert inputs["tags"] == ["demo-fabric"]
    assert inputs["labels"] == labels
    assert inputs["shieldedInstanceConfig"] == {"enableSecureBoot": False}


@pytest.mark.parametrize(
    ("tier", "spot", "reserved"), [("spot", True, False), ("guaranteed", False, True), ("on-demand", False, False)]
)
def test_a_tier_is_one_way_of_being_had(vm: Make, tier: str, spot: bool, reserved: bool) -> None:
    assert vm(tier=tier).one("V2Vm").inputs["schedulingConfig"] == {"spot": spot, "reserved": reserved}


def test_a_shape_in_place_of_a_type(vm: Make) -> None:
    shape = {"type": "V5LITE_POD", "topology": "2x4"}
    inputs = vm(accelerator_type=None, accelerator_config=shape, secure_boot=True).one("V2Vm").inputs
    assert inputs["acceleratorConfig"] == shape
    assert "acceleratorType" not in inputs
    assert inputs["shieldedInstanceConfig"] == {"enableSecureBoot": True}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"tier": "sport"}, "tier"),
        ({"accelerator_type": None}, "accelerator_type"),
        ({"accelerator_config": {"type": "V5P", "topology": "2x2x1"}}, "accelerator_config"),
        ({"labels": {"Team": "ml"}}, "labels.Team"),
    ],
)
def test_a_mistake_is_told_before_anything_is_declared(vm: Make, changes: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError) as told:
        vm(**changes)
    assert told.value.place == place


def test_the_api_has_every_field(vm: Make) -> None:
    """The provider's names are the API's; the discovery document ships with google-api-python-client."""
    text = (files("googleapiclient.discovery_cache") / "documents" / "tpu.v2.json").read_text("utf-8")
    schemas = json.loads(text)["schemas"]
    inputs = vm(subnetwork="main", network_tags=["t"], startup_script="x", tier="spot").one("V2Vm").inputs
    place = {"project", "zone"}
    assert inputs.keys() - place <= schemas["Node"]["properties"].keys()
    for key, schema in (("networkConfig", "NetworkConfig"), ("schedulingConfig", "SchedulingConfig")):
        assert inputs[key].keys() <= schemas[schema]["properties"].keys()
    # The provider says scopes where the API says scope.
    assert inputs["serviceAccount"].keys() == {"email", "scopes"}


@pytest.mark.parametrize(("tier", "market"), [("spot", "spot"), ("guaranteed", "reservation"), ("on-demand",) * 2])
def test_it_is_in_the_bill(vm: Make, tier: str, market: str) -> None:
    (line,) = price_resources(vm(tier=tier).resources, load_provider("gcp"), "us-west4")
    assert line.name == f"demo-tpu: 1 x v5litepod-4, 4 chips, {market}"
    assert line.hourly is not None
    assert line.hourly > 0
