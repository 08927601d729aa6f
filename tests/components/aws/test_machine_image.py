"""MachineImage: what its builder runs and may do, and what makes another image."""

import base64
import gzip
import json
import random
import re
from typing import Any

import pytest
import yaml

from gangway.components.aws.machine_image import DATA_LIMIT, MachineImage, component_document
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make

SCRIPT = "#!/usr/bin/env bash\necho '{{ not a parameter }}'\n"


def commands(document: str) -> list[str]:
    (phase,) = yaml.safe_load(document)["phases"]
    assert phase["name"] == "build"
    (step,) = phase["steps"]
    found: list[str] = step["inputs"]["commands"]
    return found


def test_the_builder_runs_the_script_as_it_is() -> None:
    document = component_document(SCRIPT)
    assert "{{" not in document, "Image Builder would replace it"
    packed = re.search(r"<<<(\S+) ", commands(document)[0])
    assert packed is not None
    assert gzip.decompress(base64.b64decode(packed[1])).decode() == SCRIPT
    assert component_document(SCRIPT) == document, "another text would build another image"


def test_a_script_that_does_not_fit_is_refused() -> None:
    noise = random.Random(0).randbytes(DATA_LIMIT).hex()
    with pytest.raises(InputError, match=r"MachineImage.script: too long"):
        component_document(noise)


def test_the_builder_may_pull_from_one_repository(make: Make) -> None:
    made = make(MachineImage)
    policy: dict[str, Any] = json.loads(made.one("RolePolicy").inputs["policy"])
    pulls = next(one for one in policy["Statement"] if one["Sid"] == "PullImages")
    assert pulls["Resource"] == "arn:aws:ecr:us-east-2:1:repository/x"
    attached = {one.inputs["policyArn"] for one in made.of("RolePolicyAttachment")}
    assert attached == {
        "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore",
        "arn:aws:iam::aws:policy/EC2InstanceProfileForImageBuilder",
    }


def test_without_a_repository_it_pulls_from_none(make: Make) -> None:
    policy = json.loads(make(MachineImage, repository_arn=None).one("RolePolicy").inputs["policy"])
    assert [one["Sid"] for one in policy["Statement"]] == ["LogInToRegistry"]


def test_the_disk_is_the_nodes_and_encrypted(make: Make) -> None:
    (disk,) = make(MachineImage, root_volume_gib=300).one("ImageRecipe").inputs["blockDeviceMappings"]
    assert (disk["deviceName"], disk["ebs"]["volumeSize"], disk["ebs"]["encrypted"]) == ("/dev/sda1", 300, "true")


def test_amis_are_found_again_by_the_stacks_tags(make: Make, tags: dict[str, str]) -> None:
    (place,) = make(MachineImage).one("DistributionConfiguration").inputs["distributions"]
    ami = place["amiDistributionConfiguration"]
    assert ami["amiTags"] == {**tags, "gangway:role": "machine-image"}
    assert "{{ imagebuilder:buildDate }}" in ami["name"], "names of AMIs are unique"


def test_other_programs_keep_all_images(make: Make) -> None:
    assert make(MachineImage, keep=None).of("KeptImages") == []


def test_the_image_before_the_newest_stays(make: Make) -> None:
    with pytest.raises(InputError, match=r"MachineImage.keep.*\n.*1") as caught:
        make(MachineImage, keep=1)
    assert caught.value.fix == "keep=2"
