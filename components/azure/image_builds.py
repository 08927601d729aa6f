"""Runs an image template, waits for its image and deletes old ones. Pulumi's provider only creates the template."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import pulumi

from gangway.components.azure.api import get_json, send

Answer = TypeVar("Answer")
GetToken = Callable[[], Awaitable[str]]
"""A token for Resource Manager: one may be good for less time than a build takes."""
TEMPLATES_API_VERSION, VERSIONS_API_VERSION = "2024-02-01", "2024-03-03"
RUN_OUTPUT = "nodes"
POLL_SEC = 30.0
PAUSES_SEC = (5.0, 10.0, 20.0, 40.0)
"""Between attempts; answers with a status in REFUSED are final. Image Builder now and then answers 500 while it builds
(danielsollondon/azvmimagebuilder#129).
"""
REFUSED = (400, 401, 403, 404, 409)
UNDER_WAY = ("Running", "Canceling")


async def finish_build(template_id: str, definition_id: str, keep: int | None, get_token: GetToken) -> str:
    """The id of the template's image, after a build if the last one failed or there was none; all but the newest `keep`
    images of the definition are deleted. Empty in a preview before a build. pulumi.RunError: it failed, or Azure
    refused.
    """
    if (await get_token()).startswith("${"):  # in a plan
        return f"${{the image of {template_id}}}"
    last = await _ask(template_id, get_token, lambda token: _last_run(template_id, token))
    if last.get("runState") != "Succeeded":
        if pulumi.runtime.is_dry_run():
            return ""
        await _build(template_id, get_token, last)
    output = f"{template_id}/runOutputs/{RUN_OUTPUT}"
    found = await _ask(template_id, get_token, lambda token: get_json(output, TEMPLATES_API_VERSION, token))
    if keep is not None and not pulumi.runtime.is_dry_run():
        await _ask(definition_id, get_token, lambda token: _delete_old(definition_id, keep, token))
    return str(found["properties"]["artifactId"])


async def _build(template_id: str, get_token: GetToken, last: Mapping[str, Any]) -> None:
    def last_run() -> Awaitable[dict[str, Any]]:
        return _ask(template_id, get_token, lambda token: _last_run(template_id, token))

    started_at: Any = ""
    if last.get("runState") not in UNDER_WAY:
        started_at = last.get("startTime")
        run = f"{template_id}/run"
        await _ask(template_id, get_token, lambda token: send("POST", run, TEMPLATES_API_VERSION, token))
    pulumi.log.info("Image Builder builds the nodes' machine image, which takes about half an hour")
    # A moment after the call the template still has the run before.
    while (last := await last_run()).get("startTime") == started_at or last.get("runState") in UNDER_WAY:
        await asyncio.sleep(POLL_SEC)
    if last["runState"] != "Succeeded":
        raise pulumi.RunError(
            f"{template_id}: the build of the machine image ended with {last['runState']}: {last.get('message')}; "
            "customization.log in the storage account of the group IT_... has the script's output; the next `up` "
            "builds again"
        )


def _last_run(template_id: str, token: str) -> dict[str, Any]:
    template = get_json(template_id, TEMPLATES_API_VERSION, token)
    return dict(template["properties"].get("lastRunStatus") or {})


def old_versions(versions: Iterable[Mapping[str, Any]], keep: int) -> list[str]:
    """The ids of the image versions beyond the newest `keep`, and of those that failed."""
    ranked = sorted(
        versions, key=lambda one: str(one["properties"]["publishingProfile"]["publishedDate"]), reverse=True
    )
    state = {str(one["id"]): one["properties"]["provisioningState"] for one in ranked}
    kept = [id_ for id_, reached in state.items() if reached == "Succeeded"][:keep]
    return [id_ for id_, reached in state.items() if reached in ("Failed", "Succeeded") and id_ not in kept]


def _delete_old(definition_id: str, keep: int, token: str) -> None:
    """Machines that run from a deleted image continue."""
    versions = get_json(f"{definition_id}/versions", VERSIONS_API_VERSION, token)["value"]
    for id_ in old_versions(versions, keep):
        send("DELETE", id_, VERSIONS_API_VERSION, token)


async def _ask(subject: str, get_token: GetToken, request: Callable[[str], Answer]) -> Answer:
    """The answer, with retries. In a thread, so that the program declares other resources meanwhile."""
    pauses_sec = list(PAUSES_SEC)
    while True:
        try:
            return await asyncio.to_thread(request, await get_token())
        except (OSError, ValueError, KeyError) as error:
            if not pauses_sec or getattr(error, "code", None) in REFUSED:
                raise pulumi.RunError(
                    f"{subject}: no machine image: {error!r}; run `az login`, then `pulumi up --refresh`, which waits "
                    "for a build that continues"
                ) from None
            await asyncio.sleep(pauses_sec.pop(0))
