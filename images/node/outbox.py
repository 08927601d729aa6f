"""Opens the files of a run's folder for upload. Needs only Python 3.9.

    python3 outbox.py RUN_DIR UID MARKS WANTED COMMAND...

The job owns the folder, and may put links, FIFOs or other users' files there and swap them at any time; this runs as
root. So it follows no link, checks open descriptors, opens each name once, and passes paths of descriptors to COMMAND:

- $RECORD, $SUM_OF_RECORD: the record, if its checksum is not in MARKS/uploaded; else empty.
- $RESULTS, $SUM_OF_RESULTS: if WANTED is `yes`, a folder with hard links to the newest checkpoint, pictures and
  statistics, if their checksum is not in MARKS/results; else empty.
- $PROGRESS: the number of images and the time as JSON, if not in MARKS/progress. If WANTED is `progress`, only this.

The exit code is COMMAND's.
"""

import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_RECORD_BYTES = 64_000_000
_MAX_PICTURES = 10_000
_NONE = -1


class Owned(NamedTuple):
    """An opened folder of user `uid`; `at` is -1 if it does not exist."""

    at: int
    uid: int

    def file(self, name: str) -> int:
        """The descriptor of the user's regular file; -1 without one. Logs anything else."""
        return self._open(name, _FILE, stat.S_IFREG)

    def folder(self, name: str) -> "Owned":
        """The user's folder of this name."""
        return Owned(self._open(name, _FOLDER, stat.S_IFDIR), self.uid)

    def has(self, name: str) -> bool:
        """Whether the user has such a file."""
        descriptor = self.file(name)
        if descriptor != _NONE:
            os.close(descriptor)
        return descriptor != _NONE

    def close(self) -> None:
        """Closes the descriptor."""
        if self.at != _NONE:
            os.close(self.at)

    def names(self) -> list[str]:
        """All names in it, in reverse order."""
        return sorted(os.listdir(self.at), reverse=True) if self.at != _NONE else []  # noqa: PTH208 - a descriptor

    def _open(self, name: str, flags: int, kind: int) -> int:
        if self.at == _NONE:
            return _NONE
        try:
            descriptor = os.open(name, flags, dir_fd=self.at)
        except FileNotFoundError:
            return _NONE
        except OSError as error:  # a link, a socket, a file instead of a folder
            say(f"skipping {name!r}: {error.strerror}")
            return _NONE
        found = os.fstat(descriptor)
        if stat.S_IFMT(found.st_mode) == kind and found.st_uid == self.uid:
            return descriptor
        os.close(descriptor)
        say(f"skipping {name!r}: not written by the trainer")
        return _NONE


class Results(NamedTuple):
    """Files in the run's folder, and a checksum that changes with them."""

    names: tuple[str, ...]
    sum: str


def say(sentence: str) -> None:
    """Logs to the journal."""
    print(f"gangway: {sentence}", file=sys.stderr, flush=True)


def get_checksum(descriptor: int) -> str:
    """SHA-256 of a file's content; empty for no file."""
    if descriptor == _NONE:
        return ""
    content = hashlib.sha256()
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        while block := file.read(1 << 20):
            content.update(block)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return content.hexdigest()


def get_record(run: Owned) -> int:
    """The run's record, opened; -1 without one."""
    record = run.file("run.json")
    if record == _NONE:
        say("no run record yet")
    elif os.fstat(record).st_size > _MAX_RECORD_BYTES:
        say("skipping 'run.json': too large for a record")
        return _NONE
    return record


def get_progress(run: Owned) -> str:
    """The progress in the last complete line of the statistics, as JSON; else empty. Only two numbers pass."""
    stats = run.file("stats.jsonl")
    if stats == _NONE:
        return ""
    with os.fdopen(stats, "rb") as file:
        file.seek(max(0, os.fstat(stats).st_size - (1 << 20)))  # enough for a complete line
        lines = file.read(1 << 20).splitlines()
    for line in reversed(lines):
        with suppress(Exception):  # whatever the job wrote: the record must be uploaded
            fields = json.loads(line)
            return json.dumps({"version": 1, **{name: int(fields[name]) for name in ("images", "time")}})
    return ""


def get_results(run: Owned) -> Results:
    """The newest checkpoint, pictures and statistics. `link_results` opens them one at a time, since a long run has
    more pictures than a process may open files.
    """
    with closing(run.folder("checkpoints")) as checkpoints, closing(run.folder("samples")) as samples:
        saved = checkpoints.names()
        newest = next((name for name in saved if name.endswith(".pt") and checkpoints.has(name)), "")
        # With its manifest and the shards of all workers.
        of_newest = [name for name in saved if newest and name.startswith(newest.removesuffix("pt"))]
        pictures = samples.names()
    if len(pictures) > _MAX_PICTURES:
        say(f"uploading the last {_MAX_PICTURES} of {len(pictures)} pictures")
    names = [name for name in ("config.json", "stats.jsonl", "reals.png", "samples.png") if run.has(name)]
    names += [f"checkpoints/{name}" for name in of_newest[:_MAX_PICTURES]]
    names += [f"samples/{name}" for name in pictures[:_MAX_PICTURES]]
    return Results(tuple(names), f"{newest} {get_checksum(run.file('stats.jsonl'))}")


@contextmanager
def link_results(run: Owned, names: Sequence[str]) -> Iterator[int]:
    """A temporary folder of this user with hard links to the files: no copy of gigabytes, and safe if the trainer
    renames a folder.
    """
    prefix = f".results-{socket.gethostname()}-"
    for name in run.names():
        if name.startswith(prefix):  # of an interrupted node
            remove(run, name)
    name = prefix + os.urandom(8).hex()
    os.mkdir(name, 0o700, dir_fd=run.at)
    own = Owned(run.at, os.geteuid()).folder(name)
    if own.at == _NONE:
        raise OSError(f"another process replaced {name}")
    try:
        for folder, group in groupby(names, lambda each: each.rpartition("/")[0]):
            link_folder(run, own, folder, [each.rpartition("/")[2] for each in group])
        yield own.at
    finally:
        remove(run, name)
        own.close()


def link_folder(run: Owned, own: Owned, folder: str, names: Sequence[str]) -> None:
    """Links a folder's files into a new folder of the same name."""
    if not folder:
        link_files(run, own, names)
        return
    os.mkdir(folder, 0o700, dir_fd=own.at)
    with closing(run.folder(folder)) as source, closing(own.folder(folder)) as target:
        link_files(source, target, names)


def link_files(source: Owned, target: Owned, names: Sequence[str]) -> None:
    """Opens, checks and links each file, by its descriptor."""
    for name in names:
        descriptor = source.file(name)
        if descriptor != _NONE:
            os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=target.at, follow_symlinks=True)
            os.close(descriptor)


def remove(run: Owned, name: str) -> None:
    """Removes a folder from the run's folder, if possible."""
    try:
        shutil.rmtree(f"/proc/self/fd/{run.at}/{name}", ignore_errors=True)
    except RecursionError:
        say(f"cannot remove {name!r}: nested too deeply")


def main(argv: Sequence[str]) -> int:
    """Opens the files, runs the command, cleans up."""
    run_dir, uid, marks, wanted, *command = argv
    run = Owned(os.open("/", os.O_RDONLY | os.O_DIRECTORY), int(uid)).folder(run_dir.lstrip("/"))
    record = _NONE if wanted == "progress" else get_record(run)
    progress = ""
    try:
        progress = get_progress(run)
    except OSError as error:
        say(f"skipping the progress: {error}")
    paths = {"RECORD": "", "SUM_OF_RECORD": get_checksum(record), "RESULTS": "", "SUM_OF_RESULTS": ""}
    paths["PROGRESS"] = "" if progress == read_mark(marks, "progress") else progress
    with ExitStack() as stack:
        descriptors = []
        if record != _NONE and paths["SUM_OF_RECORD"] != read_mark(marks, "uploaded"):
            descriptors.append(record)
            paths["RECORD"] = f"/proc/self/fd/{record}"
        # The record must be uploaded, whatever the folder holds.
        try:
            results = get_results(run) if wanted == "yes" else Results((), "")
            if results.names and results.sum != read_mark(marks, "results"):
                descriptors.append(stack.enter_context(link_results(run, results.names)))
                paths |= {"RESULTS": f"/proc/self/fd/{descriptors[-1]}", "SUM_OF_RESULTS": results.sum}
        except OSError as error:
            say(f"skipping the results: {error}")
        return subprocess.run(command, env={**os.environ, **paths}, pass_fds=descriptors, check=False).returncode


def read_mark(marks: str, name: str) -> str:
    """The checksum of the last upload; empty before the first."""
    path = Path(marks, name)
    return path.read_text("utf-8").strip() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
