"""Which of OpenStack's resources hold data that outlives a `destroy`. There is no key of a stack's own."""

from components.core.retention import Retention, types_of

__all__ = ["RETENTION"]

RETENTION = Retention(
    data={"openstack:objectstorage:Container": "run records; the object store refuses one that is not empty"},
    copies={"openstack:sharedfilesystem:Share": "nodes put records in the container"},
    disposable={
        **types_of("openstack", "sharedfilesystem: ShareAccess ShareNetwork", "who reaches the share"),
        **types_of("openstack", "objectstorage: ContainerObject TempUrl", "what `up` wrote, and can write again"),
        **types_of("openstack", "compute: Instance Keypair ServerGroup", "machines: their disks are scratch"),
        **types_of(
            "openstack",
            "identity: ApplicationCredential networking: Network Port Router RouterInterface SecGroup SecGroupRule "
            "Subnet",
            "the machines' network and their rights",
        ),
    },
)
