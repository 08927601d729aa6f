"""`gangway image build`: build a stack's trainer image on this machine or in its cloud, and name its digest."""

import re
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from gangway.cli.common import stacks_dir
from gangway.components.core.findings import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from gangway.live.image_build.context import BuildContext
    from gangway.live.image_build.remote import RemoteBuild
    from gangway.stacks.config.stack_config import StackConfig

app = typer.Typer(help="The trainer's container image of a stack, built before `up`.", no_args_is_help=True)
_ADAPTER = "image-build"


@app.callback()
def _image() -> None:
    """Keeps `gangway image` a group of commands."""


@app.command()
def build(
    stack_or_file: Annotated[
        str, typer.Argument(metavar="STACK_OR_FILE", help="A stack's name, or the path of a stack file.")
    ],
    remote: Annotated[
        bool | None,
        typer.Option("--remote/--local", help="The cloud's build service, or Docker or Podman here, if there is one."),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(metavar="REGISTRY/NAME", help="Where to push; by default the repository of image.prebuilt."),
    ] = None,
    push: Annotated[bool, typer.Option("--push/--no-push", help="Push the image; --no-push only with --local.")] = True,
    write: Annotated[bool, typer.Option("--write", help="Write the digest into the stack file.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be built, and where.")] = False,
    timeout_minutes: Annotated[int, typer.Option(min=5, max=480, help="Time limit of a remote build.")] = 60,
    codebuild_project: Annotated[
        str | None, typer.Option(help="AWS: the CodeBuild project; gangway-image-builder if omitted.")
    ] = None,
    bucket: Annotated[
        str | None, typer.Option(help="Google Cloud: bucket of contexts and logs; PROJECT_cloudbuild if omitted.")
    ] = None,
) -> None:
    """Build a stack's trainer image, push it, and print its digest and the line for the stack file.

    Exit code 0: built, and the registry has the digest. 2: invalid input, no builder, or a failed build.
    """
    from gangway.stacks.loading.loader import find_stack_file, from_file

    path = find_stack_file(stack_or_file, stacks_dir())
    config = from_file(path)
    _check(config, write=write, push=push, remote=remote)
    context = _pack(config, repository)
    where = _choose(config, remote, dry_run=dry_run)
    if not push and where is None:
        raise _no_remote_push()
    if dry_run:
        _show(context, where, config, push=push)
        return
    if where is None:
        digest = _build_remotely(config, context, timeout_minutes * 60, codebuild_project, bucket)
    else:
        from gangway.live.image_build import local

        local.build(context, where)
        if not push:
            typer.echo(f"built {context.image}, not pushed")
            return
        digest = local.push(context, where)
    _finish(path, config, f"{context.repository}@{digest}", write=write)


def _check(config: "StackConfig", *, write: bool, push: bool, remote: bool | None) -> None:
    if config.own_command is not None:
        fix = "build it with your own tools; gangway:job.image names it"
        raise InputError("gangway:job.command", "a stack with its own command has its own image", fix=fix)
    if write and not push:
        raise InputError("--write", "an image has a digest once it is pushed", allowed="--push", fix="remove --no-push")
    if not push and remote:
        raise _no_remote_push()
    if write and config.image.signature is not None:
        fix = "sign the new image, then write what `gangway signature` prints"
        raise InputError("--write", "gangway:image.signature is of the present image", allowed="no signature", fix=fix)


def _no_remote_push() -> InputError:
    problem = "a build service pushes what it builds, since nothing else remains of it"
    return InputError("--no-push", problem, allowed="only with --local", fix="remove --no-push, or add --local")


def _pack(config: "StackConfig", repository: str | None) -> "BuildContext":
    from gangway.components.core.image_reference import ONE_VERSION, is_reference
    from gangway.live.image_build.context import pack_context
    from gangway.stacks.program import get_program

    flavour = get_program(config.provider).plan(config).flavour
    name = repository or re.sub(r"(:[^:/]+)?@.*", "", config.image.prebuilt or "")
    allowed = "<registry>/<name>, a repository that exists"
    if not name:
        fix = "add --repository; the stack has no image.prebuilt yet"
        raise InputError("--repository", "missing", allowed=allowed, fix=fix)
    if "/" not in name or not is_reference(f"{name}:tag", ONE_VERSION):
        fix = "write registry and name, without tag or digest"
        raise InputError("--repository", "not a repository", value=name, allowed=allowed, fix=fix)
    return pack_context(flavour, name)


def _choose(config: "StackConfig", remote: bool | None, *, dry_run: bool) -> str | None:
    """The engine of this machine that builds; None for the cloud's service."""
    from gangway.live.image_build.local import ENGINES, find_engine, need_engine
    from gangway.stacks.base.registry import providers_with_adapter

    known = providers_with_adapter(_ADAPTER)
    if remote and config.provider not in known:
        fix = "build it here: --local"
        raise InputError("--remote", "no build service", value=config.provider, allowed=", ".join(known), fix=fix)
    if remote:
        return None
    return (find_engine() or ENGINES[0]) if dry_run else need_engine()


def _show(context: "BuildContext", engine: str | None, config: "StackConfig", *, push: bool) -> None:
    from gangway.live.image_build.local import build_argv

    typer.echo(f"image:    {context.image}")
    typer.echo(f"context:  {len(context.files)} files, {len(context.archive) / 1024:.0f} KiB, sha256:{context.sha256}")
    if engine is None:
        typer.echo(f"builder:  the build service of {config.provider}, which pushes it")
    else:
        typer.echo(f"builder:  {shlex.join(build_argv(engine, context, 'CONTEXT'))}")
        typer.echo(f"push:     {'yes' if push else 'no'}")


def _build_remotely(
    config: "StackConfig", context: "BuildContext", timeout_sec: int, project: str | None, bucket: str | None
) -> str:
    from gangway.live.image_build.remote import run_build
    from gangway.stacks.base.registry import load_adapter

    opened: RemoteBuild = load_adapter(config.provider, _ADAPTER).open_build(config, context, project, bucket)
    return run_build(opened, timeout_sec, lambda line: typer.echo(line, err=True))


def _finish(path: "Path", config: "StackConfig", image: str, *, write: bool) -> None:
    from gangway.live.image_build.stack_file import write_prebuilt

    typer.echo(f"digest: {image.partition('@')[2]}")
    typer.echo(f"gangway:image: {{prebuilt: {image}}}")
    if config.provider == "azure" and config.image.prebuilt is None:
        typer.echo("gangway:azure.registry_id is needed too: the registry's resource id", err=True)
    if write:
        write_prebuilt(path, image)
        typer.echo(f"written to {path}", err=True)
