"""OpenStack resource types by retention class. Stacks have no key of their own."""

from gangway.components.core.retention import Retention, get_types

RETENTION = Retention(
    data={"openstack:objectstorage:Container": "run records; the object store refuses to delete it unless empty"},
    copies={"openstack:sharedfilesystem:Share": "nodes put records in the container"},
    disposable=get_types(
        "openstack",
        {
            "who reaches the share": "sharedfilesystem: ShareAccess ShareNetwork",
            "written by `up`, which can write it again": "objectstorage: ContainerObject TempUrl",
            "machines: their disks are scratch": "compute: Instance Keypair ServerGroup",
            "the machines' network and permissions": """
                identity: ApplicationCredential networking: Network Port Router RouterInterface SecGroup SecGroupRule
                Subnet
            """,
        },
    ),
)
