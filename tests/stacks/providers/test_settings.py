"""Settings of one provider in another's stack file: each is told at the door with its place and its fix."""

from collections.abc import Callable
from typing import Any

import pytest

from components.findings import InputError
from stacks.config import StackConfig
from stacks.providers.settings import provider_mistakes
from stacks.sections import EXAMPLES_OF

GPU, TPU = "gcp-a3-spot", "gcp-v5p-multislice"
GcpEdited = Callable[..., StackConfig]
Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def told(error: pytest.ExceptionInfo[ExceptionGroup[Any]]) -> dict[str, InputError]:
    """The mistakes by their config paths; each names its file too."""
    mistakes = [mistake for mistake in error.value.exceptions if isinstance(mistake, InputError)]
    assert all(".yaml: gangway:" in mistake.place for mistake in mistakes)
    return {mistake.place.rpartition(": ")[2]: mistake for mistake in mistakes}


ON_GCP: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no project": (GPU, {"gcp": None}, "gangway:gcp", "add gangway:gcp: {project: my-project, billing_account: "),
    "an empty section": (GPU, {"gcp": {"project": None, "billing_account": None}}, "gangway:gcp", "add gangway:gcp: "),
    "an AMI": (
        GPU, {"cluster": {"image_id": "ami-0123456789abcdef0"}}, "gangway:cluster.image_id",
        "write image_id: projects/my-project/global/images/my-image",
    ),
    "a topology of GPUs": (
        GPU, {"cluster": {"topology": "4x4x4"}}, "gangway:cluster.topology", "leave topology out",
    ),
    "data in S3": (
        GPU, {"storage": {"source": "s3://my-bucket/digits"}}, "gangway:storage.source", "gs://my-bucket/digits",
    ),
    "a tag to activate": (
        GPU, {"budget": {"activate_tag": True}}, "gangway:budget.activate_tag", "leave activate_tag out",
    ),
    "a root device": (
        GPU,
        {"cluster": {"image_id": "projects/p/global/images/i", "root_device_name": "/dev/xvda"}},
        "gangway:cluster.root_device_name", "leave root_device_name out",
    ),
    "a tier of Lustre": (GPU, {"storage": {"tier": "zonal"}}, "gangway:storage.tier", "leave tier out"),
    "throughput of Filestore": (
        TPU, {"storage": {"kind": "filestore"}}, "gangway:storage.throughput_mbps_per_tib",
        "leave throughput_mbps_per_tib out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ON_GCP)
def test_what_google_cloud_does_not_have(gcp_edited: GcpEdited, what: str) -> None:
    name, changes, place, fix = ON_GCP[what]
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(name, **changes)
    mistakes = told(caught)
    assert list(mistakes) == [place]
    assert fix in mistakes[place].fix


ON_AWS: dict[str, tuple[str, Any, str]] = {
    "gangway:gcp": (
        "gangway:gcp", {"project": "my-project", "billing_account": "012345-6789AB-CDEF01"}, "or set provider: gcp",
    ),
    "gangway:storage.source": ("gangway:storage", {"source": "gs://my-bucket/x"}, "write source: s3://my-bucket/x"),
    "gangway:storage.kind": ("gangway:storage", {"kind": "filestore"}, "set kind: lustre"),
    "gangway:cluster.topology": ("gangway:cluster", {"topology": "4x4x4"}, "leave topology out"),
    "gangway:cluster.image_id": (
        "gangway:cluster", {"image_id": "projects/p/global/images/i"}, "write image_id: ami-0123456789abcdef0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", ON_AWS)
def test_what_aws_does_not_have(edited: Edited, place: str) -> None:
    section, changes, fix = ON_AWS[place]
    with pytest.raises(ExceptionGroup) as caught:
        edited(lambda values: values.setdefault(section, {}).update(changes))
    mistakes = told(caught)
    assert fix in mistakes[place].fix


def test_a_key_of_another_section_names_that_section(gcp_edited: GcpEdited) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(GPU, gcp={"zone": "us-central1-a", "kimg": 3})
    assert {place: mistake.fix for place, mistake in told(caught).items()} == {
        "gangway:gcp.zone": "write it in gangway:cluster",
        "gangway:gcp.kimg": "write it in gangway:job",
    }


def test_every_mistake_is_told_at_once(gcp_edited: GcpEdited) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(GPU, gcp=None, budget={"activate_tag": True}, storage={"source": "s3://my-bucket/x"})
    assert set(told(caught)) == {"gangway:gcp", "gangway:budget.activate_tag", "gangway:storage.source"}


EXAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "a bucket that is none": ({"storage": {"source": "gs://b"}}, "gs://my-bucket/celeba"),
    "no region": ({"region": None}, "region: us-central1"),
    "no capacity": ({"cluster": {"capacity": []}}, "capacity: [{kind: spot}, {kind: on-demand}]"),
    "a number for a zone": ({"cluster": {"zone": ["a"]}}, "zone: us-central1-a"),
    "no name of an image": ({"cluster": {"image_id": "my-image"}}, "projects/my-project/global/images/my-image"),
}  # fmt: skip


@pytest.mark.parametrize("what", EXAMPLES)
def test_an_example_is_the_providers_own(gcp_edited: GcpEdited, what: str) -> None:
    changes, example = EXAMPLES[what]
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(GPU, **changes)
    (mistake,) = told(caught).values()
    assert example in mistake.fix


def test_examples_of_google_cloud_stand_beside_each_other_in_a_stack(gcp_edited: GcpEdited) -> None:
    """Who follows the fixes one by one ends with a file that is accepted."""
    schema = StackConfig.model_json_schema()

    def own(schema: Any) -> Any:
        if isinstance(schema, dict):
            found = schema.get(EXAMPLES_OF, {}).get("gcp", [])
            return [*found, *(example for child in schema.values() for example in own(child))]
        return [example for child in schema for example in own(child)] if isinstance(schema, list) else []

    assert len(own(schema)) >= 10
    of_the_cluster = schema["properties"]["cluster"][EXAMPLES_OF]["gcp"][0]
    of_the_storage = schema["properties"]["storage"][EXAMPLES_OF]["gcp"][0]
    region = schema["properties"]["region"][EXAMPLES_OF]["gcp"][0]
    config = gcp_edited(TPU).model_dump()
    followed = {**config, "region": region, "cluster": of_the_cluster, "storage": of_the_storage}
    assert provider_mistakes(StackConfig.model_validate(followed), "x.yaml") == []
