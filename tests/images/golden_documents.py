"""Golden files of machines' start documents, where each file that a document writes is one line.

    @SHAPE PATH MODE INDENT CONTENT[:FORM]

CONTENT is a module or a script's template if the file is that text, in that form; otherwise a name in golden/files,
where each content is stored once. Files of /etc/gangway, which are a machine's own, stay in the document; of their
arguments for docker, those up to the home folder are a content too. The list FILES of an installer is `@FILES` where it
names the files that the installer writes.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

REPO = Path(__file__).parents[2]
OWN, BIN, LIB = "/etc/gangway/", "/opt/gangway/bin/", "/opt/gangway/lib/"
INSTALLER = "images/templates/hosts/installer.sh"
"""How the installers of all hosts begin."""
SHAPES: Mapping[str, str] = {
    "cloud-config": '  - path: {path}\n    owner: root:root\n    permissions: "{mode}"\n    content: |\n{body}',
    "narrow-config": '- path: {path}\n  permissions: "{mode}"\n  content: |\n{body}',
    "put": "put {path} {mode} <<'GANGWAY_FILE'\n{body}GANGWAY_FILE\n",
    "install": "install -D -m {mode} /dev/stdin {path} <<'GANGWAY_END_OF_FILE'\n{body}GANGWAY_END_OF_FILE\n",
    "arguments": "{body}",
}
"""How a document writes a file, a literal block of YAML or a here-document of bash; and arguments for docker."""
_FILE = {"path": r"(?P<path>\S+)", "mode": r"(?P<mode>\d+)"}
_BLOCK = _FILE | {"body": r"(?P<body>(?:(?: {3}.*)?\n)+)"}
_HERE = _FILE | {"body": r"(?P<body>(?:.*\n)*?)"}
_PATTERNS = {
    shape: re.compile("^" + form.replace("|", "[|]").format(**(_BLOCK if "|" in form else _HERE)), re.MULTILINE)
    for shape, form in SHAPES.items()
    if shape != "arguments"
}
_ARGUMENTS = re.compile(r"(?<=DOCKER_ARGV=\(\n)(?P<body>(?: .*\n)*? *HOME=/tmp\n)")
_FILES = re.compile(r"^FILES=\(\n(?:    /.*\n)+\)\n", re.MULTILINE)
_REFERENCE = re.compile(
    r"@(?P<shape>\S+) (?P<path>\S+) (?P<mode>\d+) (?P<indent>\d+) (?P<name>[^\s:]+):?(?P<form>\w*)\n"
)


def without_comments(text: str) -> str:
    return re.sub(r"^[ \t]*#(?!!).*\n", "", text, flags=re.MULTILINE).strip() + "\n"


def narrow(text: str) -> str:
    return re.sub(r"^(?: {4})+", lambda found: found[0][::4], without_comments(text), flags=re.MULTILINE)


def flat(text: str) -> str:
    return re.sub(r"^(?: {4})+", "", without_comments(text), flags=re.MULTILINE)


FORMS: Mapping[str, Callable[[str], str]] = {"": str, "bare": without_comments, "narrow": narrow, "flat": flat}


def find_source(path: str, content: str) -> tuple[str, str] | None:
    """The module or the template whose text the content is, and in which form."""
    if path.startswith(LIB):
        sources = [REPO / path.removeprefix(LIB)]
    elif path.startswith(BIN):
        sources = sorted((REPO / "images/templates").rglob(path.removeprefix(BIN)))
    else:
        sources = []
    for source in sources:
        for form, change in FORMS.items():
            if source.is_file() and change(source.read_text("utf-8")) == content:
                return str(source.relative_to(REPO)), form
    return None


def refer(path: str, content: str) -> tuple[str, str, str]:
    """The content's name, its form, and the text of that name."""
    if found := find_source(path, content):
        return *found, (REPO / found[0]).read_text("utf-8")
    wide = re.sub(r"^ +", lambda margin: margin[0] * 4, content, flags=re.MULTILINE)
    is_narrow = path.endswith(".py") and wide != content and re.search(r"^ \S", content, re.MULTILINE) is not None
    text, form = (wide, "narrow") if is_narrow and narrow(wide) == content else (content, "")
    name = PurePosixPath(path)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    # `.txt`: text for all tools, whatever the file is on a machine.
    return f"{name.stem}-{digest}{name.suffix}.txt", form, text


def list_files(text: str) -> str:
    """The list FILES of an installer that names what it writes."""
    paths = re.findall(r"^put (/\S+) \d+ <<'", text, re.MULTILINE)
    return "FILES=(\n" + "".join(f"    {path}\n" for path in paths) + ")\n"


def fold(text: str) -> tuple[str, dict[str, str]]:
    """The document with references, and the contents that golden/files has to have, by name."""
    contents: dict[str, str] = {}

    def store(shape: str, path: str, mode: str, body: str) -> str:
        first = body.lstrip("\n").split("\n", 1)[0]
        indent = 0 if shape in ("put", "install") else len(first) - len(first.lstrip(" "))
        content = "".join(line[indent:] or "\n" for line in body.splitlines(keepends=True))
        name, form, contents[name] = refer(path, content)
        return f"@{shape} {path} {mode} {indent} {name}{':' if form else ''}{form}\n"

    def fold_file(shape: str, found: re.Match[str]) -> str:
        is_own = found["path"].startswith(OWN)
        return found[0] if is_own else store(shape, found["path"], found["mode"], found["body"])

    opening = (REPO / INSTALLER).read_text("utf-8")
    folded = f"@{INSTALLER}\n{text.removeprefix(opening)}" if text.startswith(opening) else text
    for shape, pattern in _PATTERNS.items():
        folded = pattern.sub(partial(fold_file, shape), folded)
    folded = _ARGUMENTS.sub(lambda found: store("arguments", "docker-run", "0", found["body"]), folded)
    folded = _FILES.sub(lambda found: "@FILES\n" if found[0] == list_files(text) else found[0], folded)
    assert unfold(folded, contents.__getitem__) == text, "a reference must lose nothing"
    return folded, {name: content for name, content in contents.items() if "/" not in name}


def unfold(folded: str, content_of: Callable[[str], str]) -> str:
    """The document that `fold` was given."""

    def expand(found: re.Match[str]) -> str:
        margin = " " * int(found["indent"])
        lines = FORMS[found["form"]](content_of(found["name"])).splitlines(keepends=True)
        body = "".join(margin + line if line != "\n" else line for line in lines)
        return SHAPES[found["shape"]].format(path=found["path"], mode=found["mode"], body=body)

    opening = f"@{INSTALLER}\n"
    if folded.startswith(opening):
        folded = (REPO / INSTALLER).read_text("utf-8") + folded.removeprefix(opening)
    text = _REFERENCE.sub(expand, folded)
    return text.replace("@FILES\n", list_files(text))


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
