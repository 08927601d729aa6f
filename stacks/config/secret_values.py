"""Secrets of a stack file: a placeholder for encrypted values, and errors for secrets in plain text."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator

from gangway.components.core.findings import InputError

ENCRYPTED = "[encrypted in the stack file]"
"""Replaces a secret that only the engine can decrypt."""


def _hide_encrypted(value: Any) -> Any:
    # Pulumi writes secrets into the stack file as `{secure: ...}`.
    return ENCRYPTED if isinstance(value, dict) and set(value) == {"secure"} else value


Encrypted = Annotated[str | None, BeforeValidator(_hide_encrypted)]
"""A setting that must be encrypted; None if omitted."""


def plaintext_mistakes(
    section: str, setting: str, value: str | None, what: str, otherwise: str
) -> Iterator[InputError]:
    """A mistake if the secret `value` is in plain text; never repeats it. `what`: such as "a private key"; `otherwise`:
    what is used without the setting.
    """
    if value in (None, ENCRYPTED):
        return
    from pulumi.runtime.config import is_config_secret  # takes a third of a second, and few stacks have secrets

    if not is_config_secret(f"gangway:{section}"):
        yield InputError(
            f"gangway:{section}.{setting}",
            f"{what} in plain text",
            allowed=f"a secret of the stack; or leave it out to use {otherwise}",
            fix=f"make a new key, and run `pulumi config set --path --secret gangway:{section}.{setting} < KEYFILE`",
        )
