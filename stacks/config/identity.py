"""A stack's identity, unique within an account: the prefix of its names and the value of its tags and filters."""

import re
import unicodedata
from hashlib import sha256
from pathlib import Path

import yaml

from gangway.components.core.findings import InputError
from gangway.trainer.core.regular_files import read_text_file

CHECKOUT_PROJECT = "gangway"
"""The project of this checkout. Its stacks are older than identities and keep their names."""
MAX_LENGTH = 40
_VALID = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_HASH_DIGITS = 6
_WITH_HASH = re.compile(r".*-[0-9a-f]{6}")


def is_valid_identity(text: str) -> bool:
    """Whether the text is valid at the start of bucket and security group names, and as a DNS label."""
    return _VALID.fullmatch(text) is not None and not text.startswith("sg-")


def stack_identity(project: str, stack: str) -> str:
    """The stack's own name in the project `gangway`; in any other project, both names and a hash of them.

    The hash distinguishes ("a", "b-c") from ("a-b", "c"), and long names with a common prefix. A `gangway` stack whose
    name ends like a hash gets one as well, so that it cannot equal the identity of another project's stack.

    >>> stack_identity("gangway", "aws-demo"), stack_identity("vision", "dev"), stack_identity("vision", "vision")
    ('aws-demo', 'vision-dev-e71014', 'vision-fc51f7')
    """
    if project == CHECKOUT_PROJECT and not _WITH_HASH.fullmatch(stack):
        return stack
    digits = sha256(f"{project}/{stack}".encode()).hexdigest()[:_HASH_DIGITS]
    room = MAX_LENGTH - _HASH_DIGITS - 1
    first, last = _to_slug(project), _to_slug(stack)
    # A long project name is cut, to 8 characters or more, so that the stack's name stays readable.
    first = "" if first == last else first[: max(room - len(last) - 1, 8)].rstrip("-")
    name = _join(first, last)
    if not re.match(r"(?!sg-)[a-z]", name):
        name = _join("p", name)
    return f"{name[:room].rstrip('-')}-{digits}"


def _join(*names: str) -> str:
    return "-".join(name for name in names if name)


def _to_slug(name: str) -> str:
    # Azure's containers allow no two dashes in a row.
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def without_accents(text: str) -> str:
    """Removes accents: `Uni` for `Ünï`."""
    return "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))


def folder_stack(folder: str) -> str:
    """The default name of a project's first stack, derived from the folder's name without accents.

    InputError: the name has other letters outside a to z.

    >>> folder_stack("my-cluster"), folder_stack("2nd Try!"), folder_stack("Ünï")
    ('my-cluster', 'stack-2nd-try', 'uni')
    """
    letters = without_accents(folder)
    name = _to_slug(letters)
    if any(each.isalpha() and not each.isascii() for each in letters):
        raise InputError(
            "DIR",
            "the folder's name cannot be turned into a stack name",
            value=folder,
            allowed="letters a to z, also with accents, and digits; or --stack NAME",
            fix=f"add --stack {name or 'dev'}",
        )
    fits = name if is_valid_identity(name[:1]) and not name.startswith("sg-") else f"stack-{name}"
    return fits[:MAX_LENGTH].strip("-")


def project_name(stack_file: Path) -> str:
    """The name in the Pulumi.yaml of a stack file's project; CHECKOUT_PROJECT outside any. InputError: no name."""
    own_folder = stack_file.absolute().parent
    for folder in (own_folder, own_folder.parent):
        path = folder / "Pulumi.yaml"
        try:
            project = yaml.load(read_text_file(path), Loader=yaml.CSafeLoader)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise _unreadable(path, str(error).splitlines()[0]) from None
        name = project.get("name") if isinstance(project, dict) else None
        if not isinstance(name, str) or not name:
            raise _unreadable(path, "it has no `name`")
        if own_folder in (folder, folder / str(project.get("stackConfigDir", "."))):
            return name
    return CHECKOUT_PROJECT


def _unreadable(path: Path, problem: str) -> InputError:
    return InputError(
        str(path),
        f"the project's name cannot be read: {problem}",
        allowed="a Pulumi project file, with name: NAME",
        fix="correct the file; names and tags of its stacks contain the project's name",
    )
