"""An image's name reaches unit files, scripts and command lines of every node: on no provider does one pass that any of
them would read as more than a name.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan

pytestmark = pytest.mark.attack("a stack file's author", "image names that say more to bash, a unit or YAML")

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
IMAGES = {
    "aws-demo": f"123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer@{DIGEST}",
    "gcp-v5p-multislice": f"us-east5-docker.pkg.dev/my-project/gan/trainer-xla@{DIGEST}",
    "azure-ndv5-spot": f"ourimages.azurecr.io/gan/trainer@{DIGEST}",
    "openstack-gpu": f"registry.example.com/gan/trainer@{DIGEST}",
    "hosts-lab": f"registry.example.com/gan/trainer@{DIGEST}",
}
REGISTRY_ID = (
    "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/g/providers"
    "/Microsoft.ContainerRegistry/registries/ourimages"
)
HOSTILE = [
    "\n", "\r\n", " ", "\nExecStartPre=/bin/sh -c id\n", '"', "'", "$(id)", "`id`", "${HOME}", "%h", "\\", ";", "#",
    "\u202e", "\u2028", "\u00a0", "]]", "=1+1", "<b>", "{{ 1 }}", "\ud800",
]  # fmt: skip


@pytest.fixture(scope="module")
def shipped_values(repo: Path) -> dict[str, dict[str, Any]]:
    read = {name: yaml.safe_load((repo / f"stacks/Pulumi.{name}.yaml").read_text("utf-8"))["config"] for name in IMAGES}
    read["azure-ndv5-spot"].setdefault("gangway:azure", {})["registry_id"] = REGISTRY_ID
    return read


def mistakes(values: dict[str, Any], image: str, path: Path) -> list[InputError]:
    changed = deepcopy(values)
    changed["gangway:image"] = {"prebuilt": image}
    path.write_text(yaml.safe_dump({"config": changed}, allow_unicode=True), "utf-8", "surrogatepass")
    try:
        make_plan(from_file(path))
    except InputError as error:
        return [error]
    except ExceptionGroup as group:
        return [error for error in group.exceptions if isinstance(error, InputError)]
    return []


@pytest.mark.slow
@pytest.mark.parametrize("stack", IMAGES)
def test_a_plain_name_is_taken(stack: str, shipped_values: dict[str, Any], tmp_path: Path) -> None:
    assert mistakes(shipped_values[stack], IMAGES[stack], tmp_path / "Pulumi.x.yaml") == []


@pytest.mark.slow
@given(stack=st.sampled_from(list(IMAGES)), hostile=st.sampled_from(HOSTILE), share=st.floats(0, 1))
def test_no_name_is_more_than_a_name(
    shipped_values: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
    stack: str,
    hostile: str,
    share: float,
) -> None:
    good = IMAGES[stack]
    at = round(share * len(good))
    path = tmp_path_factory.getbasetemp() / "Pulumi.hostile.yaml"
    found = mistakes(shipped_values[stack], good[:at] + hostile + good[at:], path)
    assert found
    # Some letters no YAML file may hold: the file is refused then, and nothing in it is read.
    assert all("image.prebuilt" in mistake.place or "YAML" in str(mistake) for mistake in found)
