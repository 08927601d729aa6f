"""GroupTag: a Resource Manager tag on a stack's managed instance groups, for IAM conditions. Groups have no policies,
and conditions on resource names do not cover them; conditions on tags do (IAM's "Attribute reference for IAM
conditions": "any resource"). Compute Engine binds it only at creation, by the beta API.
"""

from typing import TypedDict

import pulumi
from pulumi_gcp import tags

__all__ = ["GroupTag", "GroupTagArgs", "tag_condition"]


class GroupTagArgs(TypedDict):
    """Inputs of GroupTag. `project_number`: with a project id the provider recreates the key at each `up`
    (hashicorp/terraform-provider-google#14792).
    """

    project_number: pulumi.Input[str]
    stack: str


def tag_condition(key_id: str, value_id: str) -> str:
    """IAM's condition for resources with the tag.

    >>> tag_condition("tagKeys/12", "tagValues/34")
    "resource.matchTagId('tagKeys/12', 'tagValues/34')"
    """
    return f"resource.matchTagId('{key_id}', '{value_id}')"


class GroupTag(pulumi.ComponentResource):
    """A key of the stack with one value. `bound`: for groups; `condition`: for IAM."""

    bound: pulumi.Output[dict[str, str]]
    condition: pulumi.Output[str]

    def __init__(self, name: str, args: GroupTagArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:GroupTag", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        key = tags.TagKey(
            f"{name}-groups",
            parent=pulumi.Output.concat("projects/", args["project_number"]),
            # Key names are per project, value names per key: no other stack can be meant.
            short_name=f"gangway-{args['stack']}",
            description="What a stack of Gangway's may resize and empty",
            opts=child,
        )
        value = tags.TagValue(f"{name}-groups", parent=key.id, short_name="groups", opts=child)
        both = pulumi.Output.all(key.id, value.id)
        self.bound = both.apply(lambda ids: {ids[0]: ids[1]})
        self.condition = both.apply(lambda ids: tag_condition(*ids))
        self.register_outputs({"bound": self.bound, "condition": self.condition})
