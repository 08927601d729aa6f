"""cluster.machine_image on Azure: what a stack with it declares, costs and refuses."""

import base64
import gzip
from collections.abc import Callable

import pytest

from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan

Edited = Callable[..., StackConfig]
NAME = "azure-ndv5-spot"
IMAGE_KINDS = ("Gallery", "GalleryImage", "VirtualMachineImageTemplate", "MachineImage", "ImageBuilderIdentity")


@pytest.fixture
def plan(azure_edited: Edited) -> Plan:
    return make_plan(azure_edited(NAME, cluster={"machine_image": {"keep": 4}}))


def test_nodes_start_from_the_built_image_and_the_head_from_its_own(plan: Plan) -> None:
    sets = [one.inputs for one in plan.resources if one.type.endswith(":VirtualMachineScaleSet")]
    images = {str(one["virtualMachineProfile"]["storageProfile"]["imageReference"]) for one in sets}
    assert images == {str({"id": "${the image of ${VirtualMachineImageTemplate.azure-ndv5-spot-image.id}}"})}
    (head,) = (one.inputs for one in plan.resources if one.type.endswith(":VirtualMachine"))
    assert head["storageProfile"]["imageReference"]["publisher"] == "Canonical"


def test_it_is_built_from_the_base_that_nodes_had_without_it(plan: Plan, azure_plans: dict[str, Plan]) -> None:
    (template,) = (one.inputs for one in plan.resources if one.type.endswith(":VirtualMachineImageTemplate"))
    without = next(one.inputs for one in azure_plans[NAME].resources if one.type.endswith(":VirtualMachineScaleSet"))
    base = without["virtualMachineProfile"]["storageProfile"]["imageReference"]
    assert template["source"] == {"type": "PlatformImage", **base}


def test_the_script_installs_what_the_nodes_need(plan: Plan) -> None:
    (template,) = (one.inputs for one in plan.resources if one.type.endswith(":VirtualMachineImageTemplate"))
    (step,) = template["customize"]
    script = gzip.decompress(base64.b64decode(step["inline"][0].split()[1])).decode()
    steps = [line for line in script.splitlines() if line.startswith('"$folder/bin/')]
    assert [step.rpartition("/")[2] for step in steps] == ['install-docker.sh"', 'mount-lustre.sh"', 'pull-image.sh"']
    assert "CLIENT_ID='${UserAssignedIdentity.azure-ndv5-spot-builder.clientId}'" in script


def test_a_plan_without_it_declares_nothing_of_it(azure_plans: dict[str, Plan]) -> None:
    kinds = {one.type.rpartition(":")[2] for one in azure_plans[NAME].resources}
    assert kinds.isdisjoint(IMAGE_KINDS)


def test_the_images_are_stored_at_a_price(plan: Plan) -> None:
    assert plan.cost is not None
    (line,) = [line for line in plan.cost.components if "machine images" in line.name]
    assert line.name == "azure-ndv5-spot-nodes: 4 machine images of about 60 GiB"
    assert line.hourly == pytest.approx(4 * 60 * 0.05 / 730, rel=0.01)


def test_nothing_of_it_lacks_a_price_and_the_plan_counts_its_minutes(plan: Plan) -> None:
    assert "cost.not-priced" not in {finding.code for finding in plan.findings}
    (minutes,) = (finding for finding in plan.findings if finding.code == "boot.minutes")
    assert minutes.fix == "", "it is set already"


def test_user_data_stays_as_it_is(plan: Plan, azure_plans: dict[str, Plan]) -> None:
    """Nodes check by themselves what their image has."""

    def of(plan: Plan) -> list[str]:
        sets = (one.inputs for one in plan.resources if one.type.endswith(":VirtualMachineScaleSet"))
        return [one["virtualMachineProfile"]["osProfile"]["customData"] for one in sets]

    assert of(plan) == of(azure_plans[NAME]) != []


def test_an_image_of_ones_own_and_a_cluster_are_refused(azure_edited: Edited) -> None:
    for name, more in ((NAME, {"image_id": "microsoft-dsvm:ubuntu-hpc:2404"}), ("aks-ndv5", {})):
        with pytest.raises(ExceptionGroup) as caught:
            azure_edited(name, cluster={"machine_image": {"keep": 3}, **more})
        assert "machine_image" in str(caught.value.exceptions[0])
