"""cluster.machine_image on AWS: what a stack with it declares, costs and refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan

Edit = Callable[[dict[str, Any]], object]
Edited = Callable[[Edit], StackConfig]


def with_image(**cluster: Any) -> Edit:
    return lambda values: values["gangway:cluster"].update(machine_image={"keep": 4}, **cluster)


def images_of(plan: Plan) -> dict[str, set[str]]:
    """The AMIs of launch templates, by nodes and head."""
    found: dict[str, set[str]] = {"head": set(), "nodes": set()}
    for one in plan.resources:
        if one.type == "aws:ec2/launchTemplate:LaunchTemplate":
            found["head" if one.name.endswith("-head") else "nodes"].add(one.inputs["imageId"])
    return found


def test_nodes_start_from_the_built_image_and_the_head_from_its_own(edited: Edited) -> None:
    plan = make_plan(edited(with_image()))
    images = images_of(plan)
    assert images["nodes"] == {"${Image.edited-image.outputResources[0].amis[0].image}"}
    assert not images["nodes"] & images["head"]
    recipe = next(one for one in plan.resources if one.type.endswith(":ImageRecipe"))
    assert recipe.inputs["parentImage"] == "${getParameter.insecureValue}", "the base that nodes had without it"


def test_a_plan_without_it_declares_nothing_of_it(demo_config: StackConfig) -> None:
    types = {one.type for one in make_plan(demo_config).resources}
    assert not [type_ for type_ in types if "imagebuilder" in type_ or "KeptImages" in type_]


def test_user_data_stays_byte_for_byte(edited: Edited) -> None:
    """EC2's limit leaves no room: nodes check by themselves what their image has."""

    def user_data(config: StackConfig) -> list[Any]:
        return [
            one.inputs["userData"]
            for one in make_plan(config).resources
            if one.type == "aws:ec2/launchTemplate:LaunchTemplate" and "userData" in one.inputs
        ]

    assert user_data(edited(with_image())) == user_data(edited(lambda values: None)) != []


def test_the_images_are_stored_at_a_price(edited: Edited) -> None:
    cost = make_plan(edited(with_image())).cost
    assert cost is not None
    (line,) = [line for line in cost.components if "machine images" in line.name]
    assert line.name == "edited-images: 4 machine images of about 60 GiB"
    assert line.hourly == pytest.approx(4 * 60 * 0.05 / 730, rel=0.01)


def test_nothing_of_it_lacks_a_price_or_a_class(edited: Edited) -> None:
    codes = {finding.code for finding in make_plan(edited(with_image())).findings}
    assert "cost.not-priced" not in codes


@pytest.mark.parametrize(
    ("edit", "place", "words"),
    [
        (with_image(image_id="ami-0123456789abcdef0"), "gangway:cluster", "image_id and machine_image"),
        (
            lambda values: values["gangway:cluster"].update(machine_image={"keep": 1}),
            "gangway:cluster.machine_image.keep",
            "2",
        ),
    ],
)
def test_what_contradicts_it_is_refused(edited: Edited, edit: Edit, place: str, words: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        edited(edit)
    mistakes = [error for error in caught.value.exceptions if isinstance(error, InputError)]
    assert any(place in str(error) and words in str(error) for error in mistakes), [str(each) for each in mistakes]


def test_a_network_without_the_internet_is_refused(edited: Edited) -> None:
    def closed(values: dict[str, Any]) -> None:
        with_image()(values)
        values["gangway:network"] = {"egress": "endpoints"}

    with pytest.raises(InputError, match=r"gangway:cluster.machine_image.*over the internet") as caught:
        make_plan(edited(closed))
    assert "egress: nat" in caught.value.fix


@pytest.mark.parametrize("name", ["eks-p5-kueue", "openstack-gpu", "hosts-lab"])
def test_stacks_without_one_refuse_it(gcp_edited: Callable[..., StackConfig], name: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        gcp_edited(name, cluster={"machine_image": {"keep": 3}})
    assert "gangway:cluster.machine_image" in str(caught.value.exceptions[0])
