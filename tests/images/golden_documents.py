"""Golden files of machines' start documents: each script and unit is stored once, in golden/files, and a document is
stored with references to them. A Python module that is sent as it is refers to its source. Files of /etc/gangway, which
are a machine's own, stay in the document.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

REPO = Path(__file__).parents[2]
OWN, LIB = "/etc/gangway/", "/opt/gangway/lib/"
_BLOCK = re.compile(
    r"(?P<head>^ *- path: (?P<path>\S+)\n(?:(?! *content:).*\n)*?(?P<margin> *)content: )\|\n"
    r"(?P<body>(?:(?:(?P=margin) .*)?\n)+)",
    re.MULTILINE,
)
"""A file of a cloud-init document: a literal block."""
_HERE = re.compile(
    r"(?P<head>^(?:put (?P<path>\S+) \d+|install -D -m \d+ /dev/stdin (?P<other>\S+)) <<'(?P<end>\w+)'\n)"
    r"(?P<body>(?:.*\n)*?)(?P=end)\n",
    re.MULTILINE,
)
"""A file of a shell script: a here-document."""
_REFERENCE = re.compile(r"@(?P<name>\S+) (?P<indent>\d+)\n")


def reference(path: str, content: str) -> str:
    """Path of the module that the content is, or the content's name in golden/files: text for all tools."""
    source = path.removeprefix(LIB)
    if path.startswith(LIB) and (REPO / source).is_file() and (REPO / source).read_text("utf-8") == content:
        return source
    name = PurePosixPath(path)
    return f"{name.stem}-{hashlib.sha256(content.encode()).hexdigest()[:8]}{name.suffix}.txt"


def fold(text: str) -> tuple[str, dict[str, str]]:
    """The document with references, and the contents that golden/files has to have, by name."""
    contents: dict[str, str] = {}

    def fold_one(found: re.Match[str], path: str, indent: int) -> str:
        if path.startswith(OWN):
            return found[0]
        content = "".join(line[indent:] or "\n" for line in found["body"].splitlines(keepends=True))
        name = reference(path, content)
        contents[name] = content
        return f"{found['head']}@{name} {indent}\n"

    def block(found: re.Match[str]) -> str:
        first = next(line for line in found["body"].splitlines() if line)
        return fold_one(found, found["path"], len(first) - len(first.lstrip(" ")))

    folded = _HERE.sub(lambda found: fold_one(found, found["path"] or found["other"], 0), _BLOCK.sub(block, text))
    assert unfold(folded, contents.__getitem__) == text, "a reference must lose nothing"
    return folded, {name: content for name, content in contents.items() if "/" not in name}


def unfold(folded: str, content_of: Callable[[str], str]) -> str:
    """The document that `fold` was given."""

    def expand(found: re.Match[str]) -> str:
        margin = " " * int(found["indent"])
        lines = content_of(found["name"]).splitlines(keepends=True)
        body = "".join(margin + line if line != "\n" else line for line in lines)
        if margin:
            return f"|\n{body}"
        end = re.findall(r"<<'(\w+)'\n\Z", folded[: found.start()])[0]
        return f"{body}{end}\n"

    return _REFERENCE.sub(expand, folded)


def read(path: Path) -> str:
    """A stored document, whole."""

    def content_of(name: str) -> str:
        stored = REPO / name if "/" in name else path.parent / "files" / name
        return stored.read_text("utf-8")

    return unfold(path.read_text("utf-8"), content_of)


def update(folder: Path, name: str, folded: str, contents: Mapping[str, str]) -> None:
    """Write a document and its contents. Contents of no document stay until `unused` names them."""
    (folder / "files").mkdir(exist_ok=True)
    (folder / name).write_bytes(folded.encode())
    for each, content in contents.items():
        (folder / "files" / each).write_bytes(content.encode())


def unused(folder: Path) -> set[str]:
    """Contents that no document refers to."""
    texts = [path.read_text("utf-8") for path in folder.iterdir() if path.is_file()]
    used = {found["name"] for text in texts for found in _REFERENCE.finditer(text)}
    return {path.name for path in (folder / "files").iterdir()} - used
