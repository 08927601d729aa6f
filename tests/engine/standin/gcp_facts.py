"""Facts about Google Cloud that its SDK does not say: what ids are made of, and what a living resource cannot change.

Kept by hand, for the types that the components declare; from the provider's documentation ("Changing this forces a new
resource to be created").
"""

from collections.abc import Mapping

# What is a part of another resource: its id is made of these inputs.
ID_INPUTS: Mapping[str, tuple[str, ...]] = {
    "gcp:storage/bucketObject:BucketObject": ("bucket", "name"),
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": ("repository", "role", "member"),
    "gcp:dns/recordSet:RecordSet": ("managedZone", "name", "type"),
    "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember": ("cryptoKeyId", "role", "member"),
    "gcp:projects/iAMMember:IAMMember": ("project", "role", "member"),
    "gcp:projects/service:Service": ("project", "service"),
    "gcp:secretmanager/secretIamMember:SecretIamMember": ("secretId", "role", "member"),
    "gcp:serviceaccount/iAMMember:IAMMember": ("serviceAccountId", "role", "member"),
    "gcp:servicenetworking/connection:Connection": ("network", "service"),
    "gcp:storage/bucketIAMMember:BucketIAMMember": ("bucket", "role", "member"),
}

# What a resource is called by, where it has a name of its own.
OWN_IDS = ("name", "instanceId", "repositoryId", "bucketId", "accountId", "roleId", "dashboardId", "secretId")

# Whose id is the bare name.
WHOLE_NAMES = frozenset({"gcp:storage/bucket:Bucket"})

# Whose id is of a collection and a number.
NUMBERED: Mapping[str, str] = {"gcp:tags/tagKey:TagKey": "tagKeys", "gcp:tags/tagValue:TagValue": "tagValues"}

_PLACE = frozenset({"name", "project", "region", "zone", "location"})

REPLACING_INPUTS: Mapping[str, frozenset[str]] = {
    "gcp:artifactregistry/repository:Repository": _PLACE | {"repositoryId", "format", "kmsKeyName"},
    "gcp:compute/firewall:Firewall": _PLACE | {"direction"},
    "gcp:compute/globalAddress:GlobalAddress": _PLACE | {"network", "prefixLength", "purpose", "addressType"},
    "gcp:compute/instance:Instance": _PLACE | {"bootDisk"},
    "gcp:compute/instanceGroupManager:InstanceGroupManager": _PLACE | {"baseInstanceName", "params"},
    "gcp:compute/instanceTemplate:InstanceTemplate": _PLACE
    | {
        "canIpForward",
        "description",
        "disks",
        "labels",
        "machineType",
        "metadata",
        "networkInterfaces",
        "reservationAffinity",
        "resourcePolicies",
        "scheduling",
        "serviceAccount",
        "shieldedInstanceConfig",
        "tags",
    },
    "gcp:compute/network:Network": _PLACE | {"autoCreateSubnetworks", "networkProfile"},
    "gcp:compute/resourcePolicy:ResourcePolicy": _PLACE | {"groupPlacementPolicy"},
    "gcp:compute/router:Router": _PLACE | {"network"},
    # A range is changed in place only to one that contains it.
    "gcp:compute/subnetwork:Subnetwork": _PLACE | {"ipCidrRange", "network"},
    "gcp:filestore/instance:Instance": _PLACE | {"kmsKeyName", "networks", "tier"},
    "gcp:lustre/instance:Instance": _PLACE
    | {"instanceId", "filesystem", "network", "perUnitStorageThroughput", "kmsKey"},
    "gcp:secretmanager/secret:Secret": frozenset({"project", "replication", "secretId"}),
    "gcp:serviceaccount/account:Account": frozenset({"accountId", "project"}),
    "gcp:storage/bucket:Bucket": _PLACE,
    "gcp:tags/tagKey:TagKey": frozenset({"parent", "purpose", "shortName"}),
    "gcp:tags/tagValue:TagValue": frozenset({"parent", "shortName"}),
}

# What Google does not delete while something else names it ("resourceInUseByAnotherResource").
HELD_BY_USERS = frozenset(
    {
        "gcp:compute/network:Network",
        "gcp:compute/resourcePolicy:ResourcePolicy",
        "gcp:compute/subnetwork:Subnetwork",
        "gcp:tags/tagKey:TagKey",
    }
)

# An API is enabled and a role is granted however often somebody asks.
SETTINGS = frozenset(
    {
        "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
        "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember",
        "gcp:projects/iAMMember:IAMMember",
        "gcp:projects/service:Service",
        "gcp:projects/serviceIdentity:ServiceIdentity",
        "gcp:secretmanager/secretIamMember:SecretIamMember",
        "gcp:serviceaccount/iAMMember:IAMMember",
        "gcp:storage/bucketIAMMember:BucketIAMMember",
    }
)

# Functions about resources that somebody else made: their type, and their full name by the function's arguments.
EXISTING: Mapping[str, tuple[str, str]] = {
    "gcp:artifactregistry/getRepository:getRepository": (
        "gcp:artifactregistry/repository:Repository",
        "projects/{project}/locations/{location}/repositories/{repositoryId}",
    ),
    "gcp:compute/getNetwork:getNetwork": ("gcp:compute/network:Network", "projects/{project}/global/networks/{name}"),
    "gcp:compute/getSubnetwork:getSubnetwork": (
        "gcp:compute/subnetwork:Subnetwork",
        "projects/{project}/regions/{region}/subnetworks/{name}",
    ),
    "gcp:filestore/getInstance:getInstance": (
        "gcp:filestore/instance:Instance",
        "projects/{project}/locations/{location}/instances/{name}",
    ),
    "gcp:kms/getKMSCryptoKey:getKMSCryptoKey": ("gcp:kms/cryptoKey:CryptoKey", "{keyRing}/cryptoKeys/{name}"),
    "gcp:lustre/getInstance:getInstance": (
        "gcp:lustre/instance:Instance",
        "projects/{project}/locations/{zone}/instances/{instanceId}",
    ),
    "gcp:serviceaccount/getAccount:getAccount": ("gcp:serviceaccount/account:Account", "{accountId}"),
    "gcp:storage/getBucket:getBucket": ("gcp:storage/bucket:Bucket", "{name}"),
}
