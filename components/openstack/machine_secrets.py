"""MachineSecrets: machines' secrets in an object behind a URL that expires, as OpenStack machines have no identity.
NodeIdentity: their application credential, which may only write runs to their container.
"""

import hashlib
import secrets
from typing import NotRequired, TypedDict

import pulumi
from pulumi_openstack import identity, objectstorage

from gangway.components.core.lookup import pinned_secret
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.tags import header_tags

RENEWED_EVERY_HOURS = 6  # each such period the first `up` signs a new URL
VALID_HOURS = 8  # life of a URL: its period, and two hours for the last machine created with it to boot
SECRETS_TAG, SIGNATURE_TAG = "gangway:secrets", "gangway:secrets-signature"
"""Metadata items of a server: the place of its secrets and the signature, apart, as Nova takes 255 characters each."""
KEY_HEADER = "Temp-URL-Key"
# Swift takes SHA-256 and, in newer releases, no SHA-1; Ceph documents only SHA-1 ("Temp URL Operations").
SWIFTS_DIGEST, CEPHS_DIGEST = "sha256", "sha1"


def get_period(now_sec: float) -> int:
    """The number of a period; the same number gives the same URL."""
    return int(now_sec // (RENEWED_EVERY_HOURS * 3600))


def object_name(content: str) -> str:
    """An object's name by its content's digest, which random keys in the content make unguessable."""
    return f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.json"


def split_url(url: str) -> tuple[str, str]:
    """Split a URL into the object's address and its signature.

    >>> split_url("https://swift.example.com/v1/AUTH_1/c/o?temp_url_sig=ab&temp_url_expires=1")
    ('https://swift.example.com/v1/AUTH_1/c/o', 'temp_url_sig=ab&temp_url_expires=1')
    """
    place, _, signature = url.partition("?")
    return place, signature


def url_key(stack: str, opts: pulumi.ResourceOptions | None = None) -> pulumi.Output[str]:
    """The key that signs the URLs of a stack: created at the first `up`, a secret of the state."""
    return pinned_secret(f"{stack}-url-key", "key", secrets.token_hex(32), 0, opts)


class MachineSecretsArgs(TypedDict):
    """Inputs of MachineSecrets. `content` is the object's. `url_key` signs its URL; with `of_account` (false) the
    account has it already, as Ceph's gateway needs, and the container gets none. Another `period` signs a new one.
    """

    content: pulumi.Input[str]
    url_key: pulumi.Input[str]
    of_account: NotRequired[bool]
    period: int
    tags: dict[str, str]


class MachineSecrets(pulumi.ComponentResource):
    """A container with one object. `place` and `signature` are the two parts of its URL, both secrets."""

    place: pulumi.Output[str]
    signature: pulumi.Output[str]

    def __init__(self, name: str, args: MachineSecretsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:MachineSecrets", name, None, opts)
        of_account = args.get("of_account", False)
        key = pulumi.Output.secret(args["url_key"])
        content: pulumi.Output[str] = pulumi.Output.from_input(pulumi.Output.secret(args["content"]))
        container = objectstorage.Container(
            f"{name}-secrets",
            metadata={**header_tags(args["tags"]), **({} if of_account else {KEY_HEADER: key})},
            # It contains only what `up` puts there.
            force_destroy=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        stored = objectstorage.ContainerObject(
            f"{name}-secrets",
            container_name=container.name,
            name=content.apply(object_name),
            content=content,
            content_type="application/json",
            # No tags: if only metadata change, the provider writes an empty object.
            opts=pulumi.ResourceOptions(parent=self),
        )
        signed = objectstorage.TempUrl(
            f"{name}-secrets",
            container=container.name,
            object=stored.name,
            ttl=VALID_HOURS * 3600,
            digest=CEPHS_DIGEST if of_account else SWIFTS_DIGEST,
            key=key,
            # The provider itself renews a URL only on refresh after it has expired.
            opts=pulumi.ResourceOptions(parent=self, replacement_trigger=args["period"]),
        )
        parts = signed.url.apply(split_url)
        self.place, self.signature = pulumi.Output.secret(parts[0]), pulumi.Output.secret(parts[1])
        register_outputs(self)


SERVICE = "object-store"
METHOD = "PUT"


# Keystone's access rules list method and path of each request; services enforce them if they run keystonemiddleware
# with a service_type (Swift; Ceph's object gateway refuses such credentials: ceph/ceph pull request 66866 is open).
# Without rules the credential has all of its role in the project. `up` needs that role, and not an application
# credential: Keystone does not let one create another.
class NodeIdentityArgs(TypedDict):
    """Inputs of NodeIdentity. `run_bucket` is RunBucket's name, `role` the object store's role for writing.
    `access_rules` (true) restricts the credential to that container.
    """

    run_bucket: pulumi.Input[str]
    role: str
    access_rules: NotRequired[bool]


def access_paths(container: str) -> tuple[str, ...]:
    """Paths of a container's objects in Swift and in Ceph's gateway. Keystone API, "Application credentials": `*` is
    one path segment, `**` any number.

    >>> access_paths("runs")[0]
    '/v1/*/runs/**'
    """
    return (f"/v1/*/{container}/**", f"/swift/v1/*/{container}/**")


class NodeIdentity(pulumi.ComponentResource):
    """The machines' credential: `credential_id` to request a Keystone token, and `credential_secret`, a secret."""

    credential_id: pulumi.Output[str]
    credential_secret: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:openstack:NodeIdentity", name, None, opts)
        container = pulumi.Output.from_input(args["run_bucket"])
        credential = identity.ApplicationCredential(
            f"{name}-node",
            description=f"Gangway: machines of {name} put their runs",
            roles=[args["role"]],
            unrestricted=False,
            access_rules=container.apply(_rules) if args.get("access_rules", True) else None,
            opts=pulumi.ResourceOptions(parent=self),
        )
        # Users of the credential are deleted before the container.
        self.credential_id = after(credential.id, container)
        self.credential_secret = pulumi.Output.secret(credential.secret)
        register_outputs(self)


def _rules(container: str) -> list[identity.ApplicationCredentialAccessRuleArgs]:
    return [
        identity.ApplicationCredentialAccessRuleArgs(service=SERVICE, method=METHOD, path=path)
        for path in access_paths(container)
    ]
