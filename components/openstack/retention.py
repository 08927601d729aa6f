"""OpenStack resource types by retention class: which hold data that outlives a `destroy`. Stacks have no own key."""

from components.core.retention import Retention, types_of

__all__ = ["RETENTION"]

RETENTION = Retention(
    data={"openstack:objectstorage:Container": "run records; the object store refuses to delete it unless empty"},
    copies={"openstack:sharedfilesystem:Share": "nodes put records in the container"},
    disposable={
        **types_of("openstack", "sharedfilesystem: ShareAccess ShareNetwork", "who reaches the share"),
        **types_of("openstack", "objectstorage: ContainerObject TempUrl", "written by `up`, which can write it again"),
        **types_of("openstack", "compute: Instance Keypair ServerGroup", "machines: their disks are scratch"),
        **types_of(
            "openstack",
            "identity: ApplicationCredential networking: Network Port Router RouterInterface SecGroup SecGroupRule "
            "Subnet",
            "the machines' network and permissions",
        ),
    },
)
