"""Facts about OpenStack's services that Pulumi's SDK does not say: who names whom, and which words there are.

Kept by hand, for the types that the components declare; from the services' API references, and the checks of the
Terraform provider that Pulumi's is made of.
"""

from collections.abc import Mapping

USER_DATA_LIMIT_BYTES = 65_535
MAX_TAG = 60
"""Neutron's, until it was raised to 255."""

NETWORK, GROUP = "networking/network:Network", "networking/secGroup:SecGroup"
PORT, SUBNET, ROUTER = "networking/port:Port", "networking/subnet:Subnet", "networking/router:Router"

# By type: inputs that hold ids of other resources, and their types.
REFERENCES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "compute/instance:Instance": (
        ("networks.port", PORT),
        ("schedulerHints.group", "compute/serverGroup:ServerGroup"),
    ),
    PORT: (("networkId", NETWORK), ("fixedIps.subnetId", SUBNET), ("securityGroupIds", GROUP)),
    "networking/routerInterface:RouterInterface": (("routerId", ROUTER), ("subnetId", SUBNET)),
    "networking/secGroupRule:SecGroupRule": (("securityGroupId", GROUP), ("remoteGroupId", GROUP)),
    SUBNET: (("networkId", NETWORK),),
    "sharedfilesystem/share:Share": (("shareNetworkId", "sharedfilesystem/shareNetwork:ShareNetwork"),),
    "sharedfilesystem/shareAccess:ShareAccess": (("shareId", "sharedfilesystem/share:Share"),),
    "sharedfilesystem/shareNetwork:ShareNetwork": (("neutronNetId", NETWORK), ("neutronSubnetId", SUBNET)),
}

# By type: inputs that hold one of some words.
WORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "compute/serverGroup:ServerGroup": {
        "policies": ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"),
    },
    "networking/secGroupRule:SecGroupRule": {
        "direction": ("ingress", "egress"),
        "ethertype": ("IPv4", "IPv6"),
        "protocol": ("tcp", "udp", "icmp"),
    },
    "sharedfilesystem/share:Share": {"shareProto": ("NFS", "CIFS", "CEPHFS", "GLUSTERFS", "HDFS", "MAPRFS")},
    "sharedfilesystem/shareAccess:ShareAccess": {
        "accessType": ("ip", "user", "cert", "cephx"),
        "accessLevel": ("rw", "ro"),
    },
}

# What the SDK's words do not say, and the Terraform provider's schema does.
ALSO_REPLACING: Mapping[str, frozenset[str]] = {
    "compute/instance:Instance": frozenset({"schedulerHints"}),
    "networking/router:Router": frozenset({"distributed"}),
    "objectstorage/containerObject:ContainerObject": frozenset({"containerName", "name"}),
    "objectstorage/tempUrl:TempUrl": frozenset(
        {"container", "digest", "key", "method", "object", "regenerate", "split", "ttl"}
    ),
    "networking/secGroup:SecGroup": frozenset({"deleteDefaultRules"}),
    SUBNET: frozenset({"cidr", "subnetpoolId"}),
    "sharedfilesystem/share:Share": frozenset({"shareType"}),
    "sharedfilesystem/shareAccess:ShareAccess": frozenset({"shareId", "accessType", "accessTo", "accessLevel"}),
}

# Functions about single resources: their type, and the argument that names one.
EXISTING: Mapping[str, tuple[str, str]] = {
    "openstack:networking/getNetwork:getNetwork": (NETWORK, "networkId"),
    "openstack:networking/getSecGroup:getSecGroup": (GROUP, "secgroupId"),
    "openstack:networking/getSubnet:getSubnet": (SUBNET, "subnetId"),
    "openstack:sharedfilesystem/getShare:getShare": ("sharedfilesystem/share:Share", "name"),
}
