"""cluster.machine_image on Google Cloud: what a stack with it declares, costs and refuses."""

from collections.abc import Callable

import pytest

from gangway.components.core.findings import InputError
from gangway.components.gcp.machine_image import image_name
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan

Edited = Callable[..., StackConfig]
NAME = "gcp-a3-spot"
BUILT, TEMPLATE = ":BuiltImage", ":InstanceTemplate"


def inputs(plan: Plan, kind: str) -> list[dict[str, object]]:
    return [dict(one.inputs) for one in plan.resources if one.type.endswith(kind)]


@pytest.fixture
def plan(gcp_edited: Edited) -> Plan:
    return make_plan(gcp_edited(NAME, cluster={"machine_image": {"keep": 4}}))


def sources(plan: Plan) -> set[str]:
    return {str(disk["sourceImage"]) for one in inputs(plan, TEMPLATE) for disk in one["disks"] if disk["boot"]}  # type: ignore[attr-defined]


def test_nodes_start_from_the_built_image(plan: Plan, gcp_plans: dict[str, Plan]) -> None:
    (built,) = inputs(plan, BUILT)
    assert sources(plan) == {f"projects/my-project/global/images/{built['image']}"}
    assert sources(gcp_plans[NAME]) == {str(built["base_image"])}
    size = int(float(str(built["root_volume_gib"])))
    assert built["image"] == image_name(NAME, str(built["base_image"]), str(built["script"]), size)


def test_the_builder_is_in_the_nodes_network_with_their_account(plan: Plan) -> None:
    (built,), template = inputs(plan, BUILT), inputs(plan, TEMPLATE)[0]
    assert built["security_group_ids"] == template["tags"]
    assert built["service_account_email"] == template["serviceAccount"]["email"]  # type: ignore[index]
    assert built["subnet_id"] == template["networkInterfaces"][0]["subnetwork"]  # type: ignore[index]
    assert built["kms_key_name"], "its disks have the stack's key"
    assert built["secure_boot"] is False, "modules of a Lustre client may be built here"


def test_the_script_installs_what_the_nodes_need(plan: Plan) -> None:
    (built,) = inputs(plan, BUILT)
    steps = [line for line in str(built["script"]).splitlines() if line.startswith('"$folder/bin/')]
    assert [step.rpartition("/")[2] for step in steps] == ['install-docker.sh"', 'mount-lustre.sh"', 'pull-image.sh"']


def test_a_plan_without_it_declares_nothing_of_it(gcp_plans: dict[str, Plan]) -> None:
    assert inputs(gcp_plans[NAME], BUILT) == []


def test_the_images_are_stored_at_a_price(plan: Plan) -> None:
    assert plan.cost is not None
    (line,) = [line for line in plan.cost.components if "machine images" in line.name]
    assert line.name == "gcp-a3-spot-image: 4 machine images of about 60 GiB"
    assert line.hourly == pytest.approx(4 * 60 * 0.05 / 730, rel=0.01)


def test_nothing_of_it_lacks_a_price_and_the_plan_counts_its_minutes(plan: Plan) -> None:
    assert "cost.not-priced" not in {finding.code for finding in plan.findings}
    (minutes,) = (finding for finding in plan.findings if finding.code == "boot.minutes")
    assert minutes.fix == "", "it is set already"


def test_user_data_stays_as_it_is(plan: Plan, gcp_plans: dict[str, Plan]) -> None:
    """Nodes check by themselves what their image has."""
    found = [[one["metadata"] for one in inputs(each, TEMPLATE)] for each in (plan, gcp_plans[NAME])]
    assert found[0] == found[1] != []


def test_an_image_of_ones_own_a_cluster_and_slices_are_refused(gcp_edited: Edited) -> None:
    for name, more in ((NAME, {"image_id": "projects/p/global/images/mine"}), ("gke-a3-jobset", {})):
        with pytest.raises(ExceptionGroup) as caught:
            gcp_edited(name, cluster={"machine_image": {"keep": 3}, **more})
        assert "machine_image" in str(caught.value.exceptions[0])
    with pytest.raises(InputError, match="machine_image: hosts of slices start from Google's own images"):
        make_plan(gcp_edited("gcp-v5e-pod", cluster={"machine_image": {"keep": 3}}))
