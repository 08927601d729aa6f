"""PrivateEndpoints of the stack's run account, registry and vault. Service tags would admit all accounts."""

from typing import NamedTuple, TypedDict

import pulumi
from pulumi_azure_native import network, privatedns

from gangway.components.azure.immutable import replacing
from gangway.components.core.dependencies import after

__all__ = ["SERVICES", "PrivateEndpoints", "PrivateEndpointsArgs", "Service"]


class Service(NamedTuple):
    """`part`: the target of an endpoint, as Azure Private Link calls it. `zone`: DNS zone that maps the public name to
    the endpoint ("Azure services DNS zone configuration").
    """

    part: str
    zone: str


SERVICES = {
    "account": Service("blob", "privatelink.blob.core.windows.net"),
    "registry": Service("registry", "privatelink.azurecr.io"),
    "vault": Service("vault", "privatelink.vaultcore.azure.net"),
}


class PrivateEndpointsArgs(TypedDict):
    """Inputs of PrivateEndpoints. `subnet_id` is in `network_id`; `registry_id` must be Premium."""

    resource_group_name: pulumi.Input[str]
    location: str
    subnet_id: pulumi.Input[str]
    network_id: pulumi.Input[str]
    account_id: pulumi.Input[str]
    registry_id: pulumi.Input[str]
    vault_id: pulumi.Input[str]
    tags: dict[str, str]


class PrivateEndpoints(pulumi.ComponentResource):
    """An endpoint and a zone per service. `subnet_id`: the machines' subnet, known once all names resolve."""

    subnet_id: pulumi.Output[str]

    def __init__(self, name: str, args: PrivateEndpointsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:PrivateEndpoints", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        targets = {"account": args["account_id"], "registry": args["registry_id"], "vault": args["vault_id"]}
        named: list[pulumi.CustomResource] = []
        for what, target in targets.items():
            named = [*named, *self._endpoint(what, target, SERVICES[what], named)]
        self.subnet_id = after(args["subnet_id"], *named)
        self.register_outputs({"subnet_id": self.subnet_id})

    def _endpoint(
        self, what: str, target: pulumi.Input[str], service: Service, before: list[pulumi.CustomResource]
    ) -> list[pulumi.CustomResource]:
        """An endpoint, after those `before`: Azure changes a subnet once at a time."""
        args = self._args
        endpoint = network.PrivateEndpoint(
            f"{self._name}-{what}",
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            subnet=network.SubnetArgs(id=args["subnet_id"]),
            private_link_service_connections=[
                network.PrivateLinkServiceConnectionArgs(
                    name=what, private_link_service_id=target, group_ids=[service.part]
                )
            ],
            tags=args["tags"],
            opts=pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(depends_on=before)),
        )
        zone, link = self._zone(what, service.zone)
        group = network.PrivateDnsZoneGroup(
            f"{self._name}-{what}",
            resource_group_name=args["resource_group_name"],
            private_endpoint_name=endpoint.name,
            private_dns_zone_group_name="default",
            private_dns_zone_configs=[network.PrivateDnsZoneConfigArgs(name=what, private_dns_zone_id=zone.id)],
            opts=self._child,
        )
        return [group, link]

    def _zone(self, what: str, name: str) -> tuple[privatedns.PrivateZone, privatedns.VirtualNetworkLink]:
        args = self._args
        zone = privatedns.PrivateZone(
            f"{self._name}-{what}",
            resource_group_name=args["resource_group_name"],
            private_zone_name=name,
            location="global",
            tags=args["tags"],
            opts=self._child,
        )
        link = privatedns.VirtualNetworkLink(
            f"{self._name}-{what}",
            resource_group_name=args["resource_group_name"],
            private_zone_name=zone.name,
            location="global",
            virtual_network=privatedns.SubResourceArgs(id=args["network_id"]),
            registration_enabled=False,
            tags=args["tags"],
            opts=self._child,
        )
        return zone, link
