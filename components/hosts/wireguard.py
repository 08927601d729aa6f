"""WireGuard between machines over SSH: their keys, tunnel addresses and configuration files."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pulumi

INTERFACE = "gangway"
WIREGUARD_FILE = f"/etc/wireguard/{INTERFACE}.conf"  # of wg-quick(8); root only, never in the machine's script


class Peer(NamedTuple):
    """One machine: its resource name, its endpoint, and its address in the tunnels."""

    name: str
    endpoint: str
    address: str


def tunnel_addresses(network: str, num_machines: int) -> tuple[str, ...]:
    """The first addresses of the network, in the order of the machines."""
    hosts = IPv4Network(network).hosts()
    return tuple(str(next(hosts)) for _ in range(num_machines))


def new_private_key() -> str:
    """32 bytes (X25519) in base64, as `wg genkey` prints them."""
    import base64

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return base64.b64encode(X25519PrivateKey.generate().private_bytes_raw()).decode()


def public_key(private: str) -> str:
    """The public key of a private one, as `wg pubkey` prints it."""
    import base64

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    own = X25519PrivateKey.from_private_bytes(base64.b64decode(private))
    return base64.b64encode(own.public_key().public_bytes_raw()).decode()


def private_key(stack: str, machine: str, opts: "pulumi.ResourceOptions | None" = None) -> "pulumi.Output[str]":
    """A machine's key, created once; a secret of the state."""
    from gangway.components.core.lookup import pinned_secret  # with Pulumi

    return pinned_secret(f"{stack}-{machine}-wireguard", "key", new_private_key(), 0, opts)


def config_text(peers: Sequence[Peer], keys: Mapping[str, str], own: str, port: int) -> str:
    """The configuration of machine `own`, a secret (wg(8), "Configuration File Format"). `keys`: all private keys."""
    (me,) = [peer for peer in peers if peer.name == own]
    lines = ["[Interface]", f"PrivateKey = {keys[own]}", f"Address = {me.address}/32", f"ListenPort = {port}"]
    for peer in peers:
        if peer.name != own:
            host = f"[{peer.endpoint}]" if ":" in peer.endpoint else peer.endpoint
            lines += ["", "[Peer]", f"PublicKey = {public_key(keys[peer.name])}", f"AllowedIPs = {peer.address}/32"]
            lines += [f"Endpoint = {host}:{port}", "PersistentKeepalive = 25"]
    return "\n".join(lines) + "\n"
