"""MachineImage: an image in which a node's software is installed already, built by Azure VM Image Builder in `up`."""

import base64
import gzip
from collections.abc import Awaitable
from typing import NotRequired, TypedDict

import pulumi
from pulumi.output import UNKNOWN
from pulumi_azure_native import authorization, compute, resources, virtualmachineimages

from gangway.components.azure.common import CommonArgs, common_inputs, declare_identity, heeded, replacing
from gangway.components.azure.identity import Grantee
from gangway.components.azure.image_builds import RUN_OUTPUT, finish_build
from gangway.components.azure.launch import plan_image, with_version
from gangway.components.azure.policies import ACR_PULL, IDENTITY_OPERATOR, IMAGE_WRITER_ACTIONS, IMAGES_TAG
from gangway.components.core.findings import InputError
from gangway.components.core.outputs import after, register_outputs

BUILDER_TYPE = "Standard_D4s_v5"
"""The builder needs no GPU: drivers are the base image's, and the Lustre client is for its kernel."""
BUILD_MINUTES = 90
_SCRIPT = "/tmp/gangway-provision.sh"


class ImageBuilderIdentityArgs(CommonArgs):
    """Inputs of ImageBuilderIdentity. `repository_id`: the registry's resource id; `role_wait_sec` (0): wait for Azure
    to apply the grant, only in Python programs (`gangway.components.core.settling`).
    """

    subscription_id: str
    stack: str
    repository_id: pulumi.Input[str]
    role_wait_sec: NotRequired[float]


class ImageBuilderIdentity(pulumi.ComponentResource):
    """The identity of the machine that builds an image: it may pull containers. `identity_id` waits for the grant;
    `client_id`: to request tokens.
    """

    identity_id: pulumi.Output[str]
    client_id: pulumi.Output[str]

    def __init__(self, name: str, args: ImageBuilderIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:ImageBuilderIdentity", name, None, replacing(opts))
        child = pulumi.ResourceOptions(parent=self)
        identity = declare_identity(f"{name}-builder", args, child)
        whose = (name, "builder", identity.principal_id, args["subscription_id"], args["stack"], child)
        grant = Grantee(*whose).may("image", ACR_PULL, args["repository_id"])
        waits = heeded(f"{name}-builder-heeded", "the image builder", [grant], args.get("role_wait_sec", 0), child)
        self.identity_id = after(identity.id, *waits)
        self.client_id = identity.client_id
        register_outputs(self)


class MachineImageArgs(TypedDict):
    """Inputs of MachineImage. `base_image`: of the Marketplace, `publisher:offer:sku[:version]`, of generation 2, with
    `base_version` if open; `script`: bash, run as root; `identity_id`: ImageBuilderIdentity's; `keep`: how many images
    stay, the newest and at least 2, since scale sets name the last one until `up` ends (by default all);
    `root_volume_gib` is at most the nodes'. Encrypted with Azure's keys: an image holds no secret, and Image Builder
    takes no other key.
    """

    location: str
    tags: dict[str, str]
    subscription_id: str
    stack: str
    base_image: str
    base_version: NotRequired[pulumi.Input[str] | None]
    script: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    root_volume_gib: int
    keep: NotRequired[int | None]
    role_wait_sec: NotRequired[float]


def shell_commands(script: str) -> list[str]:
    """The commands that run the script, which is packed: they are in the template.

    >>> shell_commands("#!/usr/bin/env bash")[1]
    'sudo bash /tmp/gangway-provision.sh'
    """
    packed = base64.b64encode(gzip.compress(script.encode(), compresslevel=9, mtime=0)).decode()
    return [f"echo {packed} | base64 -d | gunzip >{_SCRIPT}", f"sudo bash {_SCRIPT}", f"rm {_SCRIPT}"]


def _known_image(found: str) -> pulumi.Output[str]:
    """Empty in a preview before a build."""
    return pulumi.Output.from_input(found or UNKNOWN).apply(str)


class MachineImage(pulumi.ComponentResource):
    """An image with the script's software, in a gallery that only the subscription's own users read. Another script or
    base builds another image, for nodes that start later. The builder is in a network that Image Builder makes for it,
    without public addresses, and deletes. All is in a separate resource group, which takes the images with it.
    """

    image_id: pulumi.Output[str]

    def __init__(self, name: str, args: MachineImageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:MachineImage", name, None, replacing(opts))
        keep = args.get("keep")
        if keep is not None and keep < 2:
            raise InputError("MachineImage.keep", "too few", value=keep, allowed="2 or more", fix="keep=2")
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        group = resources.ResourceGroup(
            f"{name}-gangway-images", location=args["location"], tags=args["tags"], opts=self._child
        )
        self._place: CommonArgs = {
            "resource_group_name": group.name,
            "location": args["location"],
            "tags": args["tags"],
        }
        definition = self._definition(group)
        template = self._template(definition)

        def build(known: list[str]) -> Awaitable[str]:
            return finish_build(known[0], known[1], keep, self._token)

        built: pulumi.Output[str] = pulumi.Output.all(template.id, definition.id).apply(build)
        self.image_id = built.apply(_known_image)
        register_outputs(self)

    async def _token(self) -> str:
        """A token for Resource Manager, of the provider."""
        answer = authorization.get_client_token_output(opts=pulumi.InvokeOutputOptions(parent=self))
        return str(await answer.token.future())

    def _definition(self, group: resources.ResourceGroup) -> compute.GalleryImage:
        # Azure refuses to delete either before its images, which Pulumi does not know, and deletes them with the group.
        child = pulumi.ResourceOptions(parent=self, deleted_with=group)
        gallery = compute.Gallery(
            f"{self._name}_images".replace("-", "_"),
            **common_inputs(self._place),
            sharing_profile=compute.SharingProfileArgs(permissions=compute.GallerySharingPermissionTypes.PRIVATE),
            opts=child,
        )
        keep = self._args.get("keep")
        kept = {} if keep is None else {IMAGES_TAG: str(keep)}
        return compute.GalleryImage(
            f"{self._name}-nodes",
            **common_inputs({**self._place, "tags": {**self._args["tags"], **kept}}),
            gallery_name=gallery.name,
            gallery_image_name="nodes",
            identifier=compute.GalleryImageIdentifierArgs(publisher="gangway", offer=self._args["stack"], sku="nodes"),
            os_type=compute.OperatingSystemTypes.LINUX,
            os_state=compute.OperatingSystemStateTypes.GENERALIZED,
            hyper_v_generation=compute.HyperVGeneration.V2,
            # Machines without Trusted Launch may use it too.
            features=[compute.GalleryImageFeatureArgs(name="SecurityType", value="TrustedLaunchSupported")],
            opts=child,
        )

    def _template(self, definition: compute.GalleryImage) -> virtualmachineimages.VirtualMachineImageTemplate:
        args, image = self._args, with_version(plan_image(self._args["base_image"]), self._args.get("base_version"))
        script = pulumi.Output.from_input(args["script"])
        return virtualmachineimages.VirtualMachineImageTemplate(
            f"{self._name}-image",
            **common_inputs(self._place),
            identity=virtualmachineimages.ImageTemplateIdentityArgs(
                type=virtualmachineimages.ResourceIdentityType.USER_ASSIGNED,
                user_assigned_identities=[self._service_identity()],
            ),
            source=virtualmachineimages.ImageTemplatePlatformImageSourceArgs(
                type="PlatformImage", publisher=image.publisher, offer=image.offer, sku=image.sku, version=image.version
            ),
            customize=[
                virtualmachineimages.ImageTemplateShellCustomizerArgs(
                    type="Shell", name="provision", inline=script.apply(shell_commands)
                )
            ],
            distribute=[
                virtualmachineimages.ImageTemplateSharedImageDistributorArgs(
                    type="SharedImage",
                    gallery_image_id=definition.id,
                    run_output_name=RUN_OUTPUT,
                    artifact_tags=args["tags"],
                    target_regions=[virtualmachineimages.TargetRegionArgs(name=args["location"])],
                )
            ],
            build_timeout_in_minutes=BUILD_MINUTES,
            vm_profile=virtualmachineimages.ImageTemplateVmProfileArgs(
                vm_size=BUILDER_TYPE,
                os_disk_size_gb=args["root_volume_gib"],
                user_assigned_identities=[args["identity_id"]],
            ),
            managed_resource_tags=args["tags"],
            # Azure changes no template, and other tags are no reason for another image.
            opts=pulumi.ResourceOptions(
                parent=self, ignore_changes=["distribute[0].artifactTags", "managedResourceTags", "tags"]
            ),
        )

    def _service_identity(self) -> pulumi.Output[str]:
        """The id of the identity with which Image Builder writes images, once it may."""
        args, name = self._args, self._name
        identity = declare_identity(f"{name}-images", self._place, self._child)
        whose = (name, "images", identity.principal_id, args["subscription_id"], args["stack"], self._child)
        seconds = args.get("role_wait_sec", 0)
        grantee = Grantee(*whose, wait_sec=seconds)
        operator = grantee.may("builder", IDENTITY_OPERATOR, args["identity_id"])
        writer = grantee.may_do(
            "write", "Image Builder writes images", IMAGE_WRITER_ACTIONS, self._place["resource_group_name"]
        )
        grants = [grant for grant in (operator, *writer) if isinstance(grant, authorization.RoleAssignment)]
        return after(identity.id, *heeded(f"{name}-images-heeded", "Image Builder", grants, seconds, self._child))
