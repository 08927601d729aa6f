"""OpenStack resource types by retention class. Stacks have no key of their own."""

from gangway.components.core.retention import Retention, get_types

RETENTION = Retention(
    data={"openstack:objectstorage:Container": "run records; the object store refuses to delete it unless empty"},
    copies={"openstack:sharedfilesystem:Share": "nodes put records in the container"},
    disposable={
        **get_types("openstack", "sharedfilesystem: ShareAccess ShareNetwork", "who reaches the share"),
        **get_types("openstack", "objectstorage: ContainerObject TempUrl", "written by `up`, which can write it again"),
        **get_types("openstack", "compute: Instance Keypair ServerGroup", "machines: their disks are scratch"),
        **get_types(
            "openstack",
            "identity: ApplicationCredential networking: Network Port Router RouterInterface SecGroup SecGroupRule "
            "Subnet",
            "the machines' network and permissions",
        ),
    },
)
