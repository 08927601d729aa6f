"""MachineImage: what its builder runs and may do, where it is, and what makes another image."""

import base64
import gzip
import re
from typing import Any

import pytest

from gangway.components.azure.machine_image import ImageBuilderIdentity, MachineImage, shell_commands
from gangway.components.azure.policies import ACR_PULL, IDENTITY_OPERATOR, IMAGE_WRITER_ACTIONS
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make, Mistakes

SCRIPT = "#!/usr/bin/env bash\necho 'a quote'\n"


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: place[key] for key in ("subscription_id", "location", "stack", "tags")},
        "base_image": "microsoft-dsvm:ubuntu-hpc:2404:latest",
        "base_version": "24.4.1",
        "script": SCRIPT,
        "identity_id": "/builder",
        "root_volume_gib": 256,
        "keep": 3,
        "role_wait_sec": 300,
    }


def test_the_builder_runs_the_script_as_it_is() -> None:
    commands = shell_commands(SCRIPT)
    packed = re.fullmatch(r"echo (\S+) \| base64 -d \| gunzip >(\S+)", commands[0])
    assert packed is not None
    assert gzip.decompress(base64.b64decode(packed[1])).decode() == SCRIPT
    assert commands[1:] == [f"sudo bash {packed[2]}", f"rm {packed[2]}"]
    assert shell_commands(SCRIPT) == commands, "another text would build another image"


def test_the_template_builds_from_the_nodes_base_without_a_network_of_ours(make: Make, args: dict[str, Any]) -> None:
    template = make(MachineImage, args).one("VirtualMachineImageTemplate").inputs
    assert template["source"] == {
        "type": "PlatformImage",
        "publisher": "microsoft-dsvm",
        "offer": "ubuntu-hpc",
        "sku": "2404",
        "version": "24.4.1",
    }
    profile = template["vmProfile"]
    assert "vnetConfig" not in profile, "Image Builder makes a network without public addresses"
    assert (profile["osDiskSizeGB"], profile["userAssignedIdentities"]) == (256, ["/builder"])
    (target,) = template["distribute"]
    assert [region["name"] for region in target["targetRegions"]] == ["eastus"]


def test_microsofts_models_take_it(make: Make, args: dict[str, Any], arm_mistakes: Mistakes) -> None:
    assert arm_mistakes(make(MachineImage, args)) == []


def test_only_the_subscriptions_own_users_read_the_images(make: Make, args: dict[str, Any]) -> None:
    made = make(MachineImage, args)
    assert made.one("Gallery").inputs["sharingProfile"] == {"permissions": "Private"}
    assert re.fullmatch(r"\w+", made.one("Gallery").name), "a gallery's name has no dash"
    images = made.one("GalleryImage").inputs
    assert images["features"] == [{"name": "SecurityType", "value": "TrustedLaunchSupported"}]
    assert images["tags"] == {**args["tags"], "gangway-images": "3"}


def test_image_builder_may_write_images_and_use_one_identity(make: Make, args: dict[str, Any]) -> None:
    made = make(MachineImage, args)
    (role,) = made.one("RoleDefinition").inputs["permissions"]
    assert role["actions"] == list(IMAGE_WRITER_ACTIONS)
    grants = {
        one.inputs["roleDefinitionId"].rpartition("/")[2]: one.inputs["scope"] for one in made.of("RoleAssignment")
    }
    assert grants.pop(IDENTITY_OPERATOR) == "/builder"
    (group,) = grants.values()
    assert group.startswith(f"/subscriptions/{args['subscription_id']}/resourceGroups/")
    assert len(made.of("Settling")) == 2


def test_the_builder_itself_may_only_pull(make: Make, place: dict[str, Any]) -> None:
    wanted = ("subscription_id", "resource_group_name", "location", "stack", "tags")
    made = make(ImageBuilderIdentity, {**{key: place[key] for key in wanted}, "repository_id": "/registry"})
    grant = made.one("RoleAssignment").inputs
    assert (grant["roleDefinitionId"].rpartition("/")[2], grant["scope"]) == (ACR_PULL, "/registry")


def test_the_image_before_the_newest_stays(make: Make, args: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"MachineImage.keep.*\n.*1") as caught:
        make(MachineImage, {**args, "keep": 1})
    assert caught.value.fix == "keep=2"


def test_a_plan_asks_nobody(declare_seen: Make, args: dict[str, Any]) -> None:
    image = declare_seen(MachineImage, args).seen["image_id"]
    assert "VirtualMachineImageTemplate.demo-image.id" in image
