"""The password by which `up` pushes to the stack's registry: what `az acr login --expose-token` shows, without `az`.

A registry takes no Azure token itself: it gives one of its own for it, good for some hours ("Azure Container Registry
integration with Azure Active Directory"). Nothing in Pulumi's provider asks for that, so this does, whenever the
registry is known: in a plan, and in the preview of the first `up`, it is not.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable
from urllib.parse import urlencode

import pulumi

__all__ = ["API_URL", "push_password"]

API_URL = "GANGWAY_API_URL"
"""The environment variable whose value stands before every API's host in tests, as on machines."""
TIMEOUT_SEC = 30.0
PAUSES_SEC = (2.0, 5.0, 10.0, 20.0)
"""Between two tries, as far as the answer is not one of REFUSED."""
REFUSED = (401, 403)
_HOST = re.compile(r"[a-z0-9-]+\.azurecr\.io")


def push_password(host: pulumi.Output[str], token: pulumi.Output[str]) -> pulumi.Output[str]:
    """The password of `components.azure.registry.LOGIN_USER`, a secret.

    Args:
        host: of the registry.
        token: for Azure's Resource Manager, of whoever runs `up`.

    Raises:
        pulumi.RunError: inside the output: the registry cannot be reached, or lets that person not push.
    """

    def ask(known: list[str]) -> Awaitable[str]:
        # Beside the program, which has other things to declare meanwhile.
        return asyncio.to_thread(_password, *known)

    return pulumi.Output.secret(pulumi.Output.all(host, token).apply(ask))


def _password(host: str, token: str) -> str:
    """The registry's answer. A new registry's name is not known everywhere at once: it is asked for some time."""
    if not _HOST.fullmatch(host):
        return ""
    pauses_sec = list(PAUSES_SEC)
    while True:
        try:
            return _exchanged(host, token)
        except (OSError, ValueError, KeyError) as error:
            if pauses_sec and getattr(error, "status", None) not in REFUSED:
                time.sleep(pauses_sec.pop(0))
                continue
            raise pulumi.RunError(
                f"{host} gives no password for pushing the trainer's image: {error!r}; run `az login`, and have the "
                "role AcrPush, Contributor or Owner; or set gangway:image.prebuilt"
            ) from None


def _exchanged(host: str, token: str) -> str:
    # Here, so that a plan loads nothing of HTTP. Unlike on a machine of the stack, a proxy may stand in between.
    from urllib.error import HTTPError
    from urllib.request import urlopen

    from images.on_node.web import RefusedError

    api_url = os.environ.get(API_URL)
    address = f"https://{host}/oauth2/exchange" if api_url is None else f"{api_url}/{host}/oauth2/exchange"
    form = urlencode({"grant_type": "access_token", "service": host, "access_token": token})
    try:
        with urlopen(address, form.encode(), timeout=TIMEOUT_SEC) as answer:
            return str(json.load(answer)["refresh_token"])
    except HTTPError as error:
        with error:
            raise RefusedError(error.code, error.reason) from None
