"""The key of no use: well formed, long enough for Azure, and checkable as the challenge's."""

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from gangway.components.azure.launch import MODULUS, nobodys_key


def test_ssh_reads_it_and_azure_takes_its_length() -> None:
    key = load_ssh_public_key(nobodys_key().encode())
    assert isinstance(key, RSAPublicKey)
    assert key.key_size == 2048
    assert (key.public_numbers().n, key.public_numbers().e) == (MODULUS, 65537)


def test_its_modulus_is_the_challenges() -> None:
    """RSA Laboratories gave the number of digits and their sum, so that a slip shows."""
    digits = str(MODULUS)
    assert (len(digits), sum(map(int, digits))) == (617, 2738)
    assert pow(3, MODULUS - 1, MODULUS) != 1, "no prime: then anybody would have the private half"
