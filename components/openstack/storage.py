"""ManilaShare, the file system all nodes mount (NFS or CephFS), and RunBucket for run records."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_openstack import objectstorage, sharedfilesystem

from gangway.components.core.findings import InputError
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.tags import header_tags

PROTOCOLS = ("NFS", "CEPHFS")
_PLACE = "gangway:openstack"


class ManilaShareArgs(TypedDict):
    """Inputs of ManilaShare. `protocol` is NFS or CEPHFS. `share_type` defaults to the cloud's. `clients` is the
    machines' address or range as NFS servers see it. `share_network` (false) puts the server into the stack's network
    and needs its ids.
    """

    capacity_gib: int
    protocol: str
    share_type: NotRequired[str | None]
    zone: str
    clients: pulumi.Input[str]
    share_network: NotRequired[bool]
    network_id: NotRequired[pulumi.Input[str] | None]
    subnet_ids: NotRequired[pulumi.Input[list[str]] | None]
    tags: dict[str, str]


def check_share(capacity_gib: int, protocol: str, *, share_network: bool, place: str = _PLACE) -> None:
    """Check a share. InputError: unknown protocol, no whole GiB, or CephFS with a server in the stack's network."""
    if protocol not in PROTOCOLS:
        raise InputError(
            f"{place}.share_protocol", "no such protocol", value=protocol, allowed=", ".join(PROTOCOLS), fix="write NFS"
        )
    if capacity_gib < 1:
        raise InputError(
            "gangway:storage.capacity_gib",
            "Manila makes no such share",
            value=capacity_gib,
            allowed="at least 1",
            fix="set capacity_gib: 1024",
        )
    if share_network and protocol != "NFS":
        raise InputError(
            f"{place}.share_network",
            "native CephFS has no server in a project's network: machines reach Ceph itself",
            value=True,
            allowed="only with share_protocol: NFS",
            fix="leave share_network out, or set share_protocol: NFS",
        )


def export_path(locations: Sequence[Mapping[str, Any]]) -> str:
    """The export location that Manila prefers, else the first.

    >>> export_path([{"path": "10.0.0.1:/a", "preferred": "False"}, {"path": "10.0.0.2:/a", "preferred": "True"}])
    '10.0.0.2:/a'
    """
    preferred = [place["path"] for place in locations if str(place.get("preferred")).lower() == "true"]
    return str((preferred or [place["path"] for place in locations] or [""])[0])


class ManilaShare(pulumi.ComponentResource):
    """A share with one access rule. `access_user` and `access_key` are empty with NFS; all wait for the rule."""

    share_id: pulumi.Output[str]
    mount_source: pulumi.Output[str]
    access_user: pulumi.Output[str]
    access_key: pulumi.Output[str]

    def __init__(self, name: str, args: ManilaShareArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:ManilaShare", name, None, opts)
        check_share(
            args["capacity_gib"], args["protocol"], share_network=args.get("share_network", False), place="args"
        )
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        share = self._share(self._network() if args.get("share_network", False) else None)
        native = args["protocol"] == "CEPHFS"
        user = f"gangway-{name}"
        access = sharedfilesystem.ShareAccess(
            f"{name}-machines",
            share_id=share.id,
            access_type="cephx" if native else "ip",
            access_to=user if native else args["clients"],
            access_level="rw",
            opts=self._child,
        )
        self.share_id = share.id
        self.mount_source = after(share.export_locations.apply(_plain_locations).apply(export_path), access)
        self.access_user = after(user if native else "", access)
        self.access_key = pulumi.Output.secret(access.access_key if native else "")
        register_outputs(self)

    def _network(self) -> sharedfilesystem.ShareNetwork:
        return sharedfilesystem.ShareNetwork(
            f"{self._name}-share",
            neutron_net_id=self._args.get("network_id") or "",
            neutron_subnet_id=pulumi.Output.from_input(self._args.get("subnet_ids") or []).apply(lambda ids: ids[0]),
            opts=self._child,
        )

    def _share(self, network: sharedfilesystem.ShareNetwork | None) -> sharedfilesystem.Share:
        args = self._args
        return sharedfilesystem.Share(
            f"{self._name}-share",
            share_proto=args["protocol"],
            size=args["capacity_gib"],
            share_type=args.get("share_type"),
            availability_zone=args["zone"] or None,
            share_network_id=None if network is None else network.id,
            is_public=False,
            metadata=args["tags"],
            opts=self._child,
        )


def _plain_locations(locations: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"path": place["path"], "preferred": place.get("preferred")} for place in locations]


class RunBucketArgs(TypedDict):
    """Inputs of RunBucket: the tags, which become metadata."""

    tags: dict[str, str]


class RunBucket(pulumi.ComponentResource):
    """A private container. `bucket_url` is `swift://NAME`, in the caller's account."""

    bucket_name: pulumi.Output[str]
    bucket_url: pulumi.Output[str]

    def __init__(self, name: str, args: RunBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:RunBucket", name, None, opts)
        container = objectstorage.Container(
            f"{name}-runs",
            metadata=header_tags(args["tags"]),
            force_destroy=False,
            # The object store refuses to delete a container with runs, and `destroy` would fail.
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        self.bucket_name = container.name
        self.bucket_url = pulumi.Output.concat("swift://", container.name)
        register_outputs(self)
