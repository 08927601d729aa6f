"""What the pages tell people to type is typed here: every block of commands that can run offline, page by page.

The pages share a copy of the repository to work in, which is put back as it was after each. In a `console` block a line
that begins with `$ ` is a command, and the lines below it must occur in what it prints, in that order; `...` stands for
any lines, and at the end of a line for the rest of it. In an `sh` block every line is a command. A `diff` is applied. A
comment before a block says what is otherwise:

    <!-- not run: why -->               it needs an account, say
    <!-- run by: tests/stacks/x.py -->  another test runs it; it takes too long here, or needs a stand-in
    <!-- run with: --kimg 0.5 -->       these words are added to each of its commands
    <!-- file: PATH -->                 the block is that file
    <!-- exit: 2 -->                    its last command ends with that code
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parent.parent.parent
PAGES = [REPO / "README.md", *sorted((REPO / "docs").glob("*.md"))]
SHELLS = frozenset({"console", "sh"})
MARKS = frozenset({"not run", "run by", "run with", "file", "exit"})
_FENCE = re.compile(r"^```(?P<language>\w*)$(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (?P<name>[a-z ]+): (?P<value>.+?) -->\n")
_MARKS_BEFORE = re.compile(rf"(?:{_MARK.pattern})+\Z")

Shell = Callable[[str, Path, Mapping[str, str]], subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Command:
    """One command and the lines that its page shows below it."""

    line: str
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """One fenced block, with what the comments before it say."""

    language: str
    text: str
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether it is to be run here."""
        return not self.marks.keys() & {"not run", "run by"}

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands in it; a backslash at the end of a line joins the next to it."""
        found: list[Command] = []
        lines = iter(self.text.splitlines())
        for line in lines:
            prompted = line.startswith("$ ")
            if (self.language == "sh" and line.strip()) or prompted:
                command = line.removeprefix("$ ")
                while command.endswith("\\"):
                    command += "\n" + next(lines)
                found.append(Command(command))
            elif found and line.strip():
                found[-1] = Command(found[-1].line, (*found[-1].shown, line.rstrip()))
        return tuple(found)


def get_blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for fence in _FENCE.finditer(page):
        before = _MARKS_BEFORE.search(page, 0, fence.start())
        marks = {mark["name"]: mark["value"] for mark in _MARK.finditer(before[0])} if before else {}
        yield Block(fence["language"], fence["text"].removeprefix("\n"), marks)


def missing_line(shown: tuple[str, ...], printed: str) -> str | None:
    """The first of the lines on the page that was not printed, after the ones before it; None where all were."""
    lines = iter(line.rstrip() for line in printed.splitlines())
    return next(
        (wanted for wanted in shown if wanted != "..." and not any(_fits(wanted, line) for line in lines)), None
    )


def _fits(wanted: str, line: str) -> bool:
    return line == wanted or (wanted.endswith("...") and line.startswith(wanted.removesuffix("...")))


def follow(page: str, folder: Path, environment: Mapping[str, str], run: Shell) -> Iterator[str]:
    """Does what a page says, in `folder`; yields what did not come out as the page has it."""
    for block in get_blocks(page):
        if not block.runs:
            continue
        if "file" in block.marks:
            target = folder / block.marks["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, "utf-8")
        elif block.language == "diff":
            (folder / "page.diff").write_text(block.text, "utf-8")
            done = run("git apply --recount page.diff", folder, environment)
            if done.returncode:
                yield f"does not apply:\n{block.text}\n{done.stdout}"
        elif block.language in SHELLS:
            yield from _follow_commands(block, folder, environment, run)


def _follow_commands(block: Block, folder: Path, environment: Mapping[str, str], run: Shell) -> Iterator[str]:
    for number, command in enumerate(block.commands, start=1):
        line = f"{command.line} {block.marks['run with']}" if "run with" in block.marks else command.line
        done = run(line, folder, environment)
        expected = int(block.marks.get("exit", 0)) if number == len(block.commands) else 0
        if done.returncode != expected:
            yield f"$ {line}\nended with {done.returncode}, not {expected}:\n{done.stdout}"
        elif (absent := missing_line(command.shown, done.stdout)) is not None:
            yield f"$ {line}\ndid not print (in that place):\n{absent}\nbut:\n{done.stdout}"


def is_first(page: Path) -> bool:
    """Whether new users begin with this page."""
    return page.stem == "README" or page.stem.startswith("first-")


# The default run types the commands of these pages, and `make test-all` those of all pages.
typed = [pytest.param(page, marks=[] if is_first(page) else [pytest.mark.slow]) for page in PAGES]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", typed, ids=lambda page: page.name)
def test_what_a_page_says_can_be_done(page: Path, workplace: Path, environment: dict[str, str], run: Shell) -> None:
    failed = list(follow(page.read_text("utf-8"), workplace, environment, run))
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_one_that_the_test_can_read(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("```") == 2 * len(list(get_blocks(text))), "a fence that is indented, or has more than a language"
    for block in get_blocks(text):
        assert block.marks.keys() <= MARKS
        assert block.language not in SHELLS or block.commands, f"nothing to type in:\n{block.text}"
        assert "$ " not in block.text or block.language in (*SHELLS, "yaml"), (
            f"a command in no console block:\n{block.text}"
        )
        if (test := block.marks.get("run by")) is not None:
            assert (REPO / test).exists(), test


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_data_on_a_page_is_well_formed(page: Path) -> None:
    for block in get_blocks(page.read_text("utf-8")):
        if block.language == "yaml":
            assert yaml.safe_load(block.text) is not None
        elif block.language == "json":
            json.loads(block.text)


def test_most_commands_are_run() -> None:
    """Were a fence no longer recognised, nothing would run and nothing would fail."""
    running = {}
    for page in PAGES:
        blocks = [block for block in get_blocks(page.read_text("utf-8")) if block.runs and block.language in SHELLS]
        running[page.relative_to(REPO).as_posix()] = sum(len(block.commands) for block in blocks)
    assert sum(running.values()) > 40
    assert sum(is_first(page) for page in PAGES) >= 3
    pages = ("README.md", "docs/costs.md", "docs/first-cluster.md", "docs/extending.md")
    assert all(running[name] for name in pages)


A_PAGE = """
Write it:

<!-- file: notes/hello.txt -->
```text
hello
```

```console
$ cat notes/hello.txt   # a comment
hello
$ echo one; echo two; \\
      echo three
one
...
three
```

<!-- exit: 3 -->
```sh
exit 3
```

<!-- run with: two -->
```console
$ echo one
one two
```

<!-- not run: it would fail -->
```console
$ false
```

```diff
--- a/notes/hello.txt
+++ b/notes/hello.txt
@@ -1 +1 @@
-hello
+goodbye
```
"""
WRONG = {
    "A comment": ("a comment\nhello", "a comment\nhullo"),
    "order": ("one\n...\nthree", "three\none"),
    "code": ("exit: 3", "exit: 4"),
    "failing": ("<!-- not run: it would fail -->\n", ""),
    "diff": ("-hello", "-hallo"),
}


def test_a_right_page_passes(tmp_path: Path, run: Shell) -> None:
    assert list(follow(A_PAGE, tmp_path, {"PATH": os.environ["PATH"]}, run)) == []
    assert (tmp_path / "notes/hello.txt").read_text() == "goodbye\n"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_does_not(name: str, tmp_path: Path, run: Shell) -> None:
    right, wrong = WRONG[name]
    assert right in A_PAGE
    assert len(list(follow(A_PAGE.replace(right, wrong), tmp_path, {"PATH": os.environ["PATH"]}, run))) == 1
