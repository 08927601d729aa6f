"""The SSH key of every machine: a public half whose private half nobody has.

Azure makes no Linux machine without a password or a key. Nobody is to come in with either: people use accounts of their
own (Entra ID, through Bastion), or run a command through the machine's agent. So the key is one that anybody can check
to be of no use: its modulus is RSA-2048 of the RSA Factoring Challenge, whose factors RSA Laboratories destroyed when
they made it and nobody has found since. Pure.
"""

import base64

__all__ = ["MODULUS", "nobodys_key"]

# RSA Laboratories, "The RSA Challenge Numbers": 617 digits, their sum 2738.
MODULUS = int(
    "25195908475657893494027183240048398571429282126204032027777137836043662020707595556264018525880784"
    "40691829064124951508218929855914917618450280848912007284499268739280728777673597141834727026189637"
    "50149718246911650776133798590957000973304597488084284017974291006424586918171951187461215151726546"
    "32282216869987549182422433637259085141865462043576798423387184774447920739934236584823824281198163"
    "81501067481045166037730605620161967625613384414360383390441495263443219011465754445417842402092461"
    "65157233507787077498171257724679629263863563732899121548314381678998850404453640235273819513786365"
    "64391212010397122822120720357"
)
EXPONENT = 65537


def nobodys_key() -> str:
    """The key as a line of an `authorized_keys` file: ssh-rsa of 2048 bits, the least that Azure takes."""
    blob = b"".join(_field(part) for part in (b"ssh-rsa", _number(EXPONENT), _number(MODULUS)))
    return f"ssh-rsa {base64.b64encode(blob).decode()} nobody"


def _number(value: int) -> bytes:
    """RFC 4251, mpint: a leading zero bit, for the number is not negative."""
    return value.to_bytes(value.bit_length() // 8 + 1, "big")


def _field(content: bytes) -> bytes:
    """RFC 4251, string: its length in four bytes before it."""
    return len(content).to_bytes(4, "big") + content
