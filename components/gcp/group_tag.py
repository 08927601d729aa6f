"""GroupTag: a Resource Manager tag that a stack's managed instance groups carry. Such a group has no policy of its own,
and conditions on resource names do not cover it; conditions on tags do (IAM's "Attribute reference for IAM conditions":
"any resource"). Compute Engine binds it when it makes a group, by the beta API, and at no other time.
"""

from typing import TypedDict

import pulumi
from pulumi_gcp import tags

__all__ = ["GroupTag", "GroupTagArgs", "tag_condition"]


class GroupTagArgs(TypedDict):
    """Inputs of GroupTag. `project_number`: the provider makes a key anew at each `up` that is given the project's id
    (hashicorp/terraform-provider-google#14792).
    """

    project_number: pulumi.Input[str]
    stack: str


def tag_condition(key_id: str, value_id: str) -> str:
    """What holds for resources with the tag, in the language of IAM's conditions.

    >>> tag_condition("tagKeys/12", "tagValues/34")
    "resource.matchTagId('tagKeys/12', 'tagValues/34')"
    """
    return f"resource.matchTagId('{key_id}', '{value_id}')"


class GroupTag(pulumi.ComponentResource):
    """A key of the stack's own, with one value. `bound`: what a group is to carry; `condition`: what IAM asks."""

    bound: pulumi.Output[dict[str, str]]
    condition: pulumi.Output[str]

    def __init__(self, name: str, args: GroupTagArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:GroupTag", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        key = tags.TagKey(
            f"{name}-groups",
            parent=pulumi.Output.concat("projects/", args["project_number"]),
            # Names of keys are the project's, of values the key's: another stack's cannot be meant.
            short_name=f"gangway-{args['stack']}",
            description="What a stack of Gangway's may resize and empty",
            opts=child,
        )
        value = tags.TagValue(f"{name}-groups", parent=key.id, short_name="groups", opts=child)
        both = pulumi.Output.all(key.id, value.id)
        self.bound = both.apply(lambda ids: {ids[0]: ids[1]})
        self.condition = both.apply(lambda ids: tag_condition(*ids))
        self.register_outputs({"bound": self.bound, "condition": self.condition})
