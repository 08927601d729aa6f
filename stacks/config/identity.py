"""A stack's identity: what its names, tags and filters carry, so that no two stacks of an account share them."""

import re
from hashlib import sha256
from pathlib import Path

import yaml

from components.core.findings import InputError

CHECKOUT_PROJECT = "gangway"
"""The project of this checkout, whose stacks were always called by their own names."""
MAX_LENGTH = 40
_VALID = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_HASH_DIGITS = 6
_WITH_HASH = re.compile(r".*-[0-9a-f]{6}")


def is_valid_identity(text: str) -> bool:
    """Whether the text can begin the names of buckets and security groups, and be a label of a DNS name."""
    return _VALID.fullmatch(text) is not None and not text.startswith("sg-")


def stack_identity(project: str, stack: str) -> str:
    """The stack's own name in the project `gangway`; elsewhere project, stack and a hash of both.

    The hash keeps ("a", "b-c") apart from ("a-b", "c"), and long names apart that begin alike. A stack of `gangway`
    whose name ends like a hash gets one as well, so that it cannot be called like a stack of another project.

    >>> stack_identity("gangway", "aws-demo"), stack_identity("vision", "dev"), stack_identity("vision", "vision")
    ('aws-demo', 'vision-dev-e71014', 'vision-fc51f7')
    """
    if project == CHECKOUT_PROJECT and not _WITH_HASH.fullmatch(stack):
        return stack
    digits = sha256(f"{project}/{stack}".encode()).hexdigest()[:_HASH_DIGITS]
    room = MAX_LENGTH - _HASH_DIGITS - 1
    first, last = _plain(project), _plain(stack)
    if first != last:
        first = f"{first[: max(room - len(last) - 1, 8)]}-{last}"
    if not re.match(r"(?!sg-)[a-z]", first):
        first = f"p-{first.strip('-')}"  # a name without letters and digits is empty here
    return f"{first[:room].strip('-')}-{digits}"


def _plain(name: str) -> str:
    """The name in lowercase letters, digits and single dashes: Azure's containers take no two in a row."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def folder_stack(folder: str) -> str:
    """The name of a project's first stack, from its folder's.

    >>> folder_stack("my-cluster"), folder_stack("2nd Try!")
    ('my-cluster', 'stack-2nd-try')
    """
    name = _plain(folder)
    fits = name if is_valid_identity(name[:1]) and not name.startswith("sg-") else f"stack-{name}"
    return fits[:MAX_LENGTH].strip("-")


def project_name(stack_file: Path) -> str:
    """The name in the Pulumi.yaml that the stack file belongs to: beside it, or one above, where `stackConfigDir` puts
    stack files into a folder. A file outside any project gets the name of this checkout's. InputError: no name.
    """
    beside = stack_file.absolute().parent
    for folder in (beside, beside.parent):
        path = folder / "Pulumi.yaml"
        try:
            project = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise _unreadable(path, str(error).splitlines()[0]) from None
        name = project.get("name") if isinstance(project, dict) else None
        if not isinstance(name, str) or not name:
            raise _unreadable(path, "holds no `name`")
        if folder / str(project.get("stackConfigDir", ".")) == beside or folder == beside:
            return name
    return CHECKOUT_PROJECT


def _unreadable(path: Path, problem: str) -> InputError:
    return InputError(
        str(path),
        f"the project's name cannot be read: {problem}",
        allowed="a project of Pulumi, which begins with name: NAME",
        fix="mend the file; names and tags of its stacks are made of the project's name",
    )
