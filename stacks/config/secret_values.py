"""Secrets of a stack file: what stands for one that only the engine can decrypt, and who wrote one in plain text."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator

from components.core.findings import InputError

ENCRYPTED = "[encrypted in the stack file]"
"""What stands for a secret that only the engine can decrypt."""


def _decryptable(value: Any) -> Any:
    """`{secure: ...}`, as Pulumi writes a secret into the stack file, as the word for it."""
    return ENCRYPTED if isinstance(value, dict) and set(value) == {"secure"} else value


Encrypted = Annotated[str | None, BeforeValidator(_decryptable)]
"""A setting that has to be encrypted; None when left out."""


def in_plain_text(section: str, setting: str, value: str | None, what: str, otherwise: str) -> Iterator[InputError]:
    """A secret that anybody reads. It is not repeated.

    Args:
        section: such as hosts.
        setting: of it.
        value: of that.
        what: it is, such as a private key.
        otherwise: what is had by leaving it out.
    """
    if value in (None, ENCRYPTED):
        return
    from pulumi.runtime.config import is_config_secret  # takes a third of a second, and few stacks have secrets

    if not is_config_secret(f"gangway:{section}"):
        yield InputError(
            f"gangway:{section}.{setting}",
            f"{what} in plain text",
            allowed=f"a secret of the stack; or none, for {otherwise}",
            fix=f"make a new key, and run `pulumi config set --path --secret gangway:{section}.{setting} < KEYFILE`",
        )
