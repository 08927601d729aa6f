"""What of a run's folder is to outlive it, opened for who puts it. With Python 3.9 alone.

    python3 outbox.py RUN_DIR UID MARKS RESULTS COMMAND...

The folder is the job's, which may put a link, a FIFO or another's file under any name there, and swap it at any time;
this runs as root. So no link is followed, an opened descriptor is asked what it is, and nobody opens a name twice:
COMMAND has paths of open descriptors. $RECORD is the record where its sum is not that in MARKS/uploaded, and $RESULTS,
where RESULTS is not empty, a folder of this user's own with the newest checkpoint, the pictures and the statistics as
hard links where their sum is not that in MARKS/results; empty for nothing new. $SUM_OF_RECORD and $SUM_OF_RESULTS are
the new sums. The exit code is COMMAND's.
"""

import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES_OF_RECORD = 64_000_000
_NONE = -1


class Owned(NamedTuple):
    """A folder of user `uid`, opened; `at` is -1 for one that is not there."""

    at: int
    uid: int

    def file(self, name: str) -> int:
        """The descriptor of a regular file of the user's; -1 where there is none. Anything else is told."""
        return self._opened(name, _FILE, stat.S_IFREG)

    def folder(self, name: str) -> "Owned":
        """A folder of the user's in this one."""
        return Owned(self._opened(name, _FOLDER, stat.S_IFDIR), self.uid)

    def names(self) -> list[str]:
        """Of all that is in it, the last first."""
        return sorted(os.listdir(self.at), reverse=True) if self.at != _NONE else []  # noqa: PTH208 - a descriptor

    def _opened(self, name: str, flags: int, kind: int) -> int:
        if self.at == _NONE:
            return _NONE
        try:
            descriptor = os.open(name, flags, dir_fd=self.at)
        except FileNotFoundError:
            return _NONE
        except OSError as error:  # a link, a socket, a file where a folder is meant
            say(f"{name!r} is left out: {error.strerror}")
            return _NONE
        found = os.fstat(descriptor)
        if stat.S_IFMT(found.st_mode) == kind and found.st_uid == self.uid:
            return descriptor
        os.close(descriptor)
        say(f"{name!r} is left out: it is nothing that the trainer has written")
        return _NONE


class Kept(NamedTuple):
    """What is put: descriptors by their names in the bucket, and what tells whether they have changed."""

    files: dict[str, int]
    sum: str


def say(sentence: str) -> None:
    """For the journal."""
    print(f"gangway: {sentence}", file=sys.stderr, flush=True)


def sum_of(descriptor: int) -> str:
    """SHA-256 of a file's content; empty for none."""
    if descriptor == _NONE:
        return ""
    content = hashlib.sha256()
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        while block := file.read(1 << 20):
            content.update(block)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return content.hexdigest()


def record_of(run: Owned) -> Kept:
    """The run's record; nothing where there is none yet."""
    record = run.file("run.json")
    if record == _NONE:
        say("no run record yet")
        return Kept({}, "")
    if os.fstat(record).st_size > _MOST_BYTES_OF_RECORD:
        say("'run.json' is left out: it is too large for a record")
        return Kept({}, "")
    return Kept({"run.json": record}, sum_of(record))


def results_of(run: Owned) -> Kept:
    """What a run is worth beside its record: the newest checkpoint, with which it can go on, pictures, statistics."""
    checkpoints, samples = run.folder("checkpoints"), run.folder("samples")
    names = {name: run.file(name) for name in ("config.json", "stats.jsonl", "reals.png", "samples.png")}
    newest = ""
    for newest in (name for name in checkpoints.names() if name.endswith(".pt")):
        if (found := checkpoints.file(newest)) != _NONE:
            beside = newest[: -len("pt")] + "json"
            names.update({f"checkpoints/{newest}": found, f"checkpoints/{beside}": checkpoints.file(beside)})
            break
    names.update({f"samples/{name}": samples.file(name) for name in samples.names()})
    files = {name: descriptor for name, descriptor in names.items() if descriptor != _NONE}
    return Kept(files, f"{newest} {sum_of(names['stats.jsonl'])}")


@contextmanager
def gathered(run: Owned, files: dict[str, int]) -> Iterator[int]:
    """A folder of this user's own with the files, on their file system, for as long as the block lasts: of gigabytes no
    second copy is made, and a folder that the trainer renames meanwhile stays the one that was opened.
    """
    prefix = f".results-{socket.gethostname()}-"
    for name in run.names():
        if name.startswith(prefix):  # of a node that was cut off
            shutil.rmtree(f"/proc/self/fd/{run.at}/{name}", ignore_errors=True)
    name = prefix + os.urandom(8).hex()
    os.mkdir(name, 0o700, dir_fd=run.at)
    own = Owned(run.at, os.geteuid()).folder(name)
    if own.at == _NONE:
        raise OSError(f"{name} was swapped as soon as it was made")
    try:
        for target, descriptor in files.items():
            folder, _, last = target.rpartition("/")
            at = own.at
            if folder:
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700, dir_fd=own.at)
                at = own.folder(folder).at
            os.link(f"/proc/self/fd/{descriptor}", last, dst_dir_fd=at, follow_symlinks=True)
        yield own.at
    finally:
        shutil.rmtree(f"/proc/self/fd/{run.at}/{name}", ignore_errors=True)


def main(argv: Sequence[str]) -> int:
    """Opens, runs the command, tidies up."""
    run_dir, uid, marks, wants_results, *command = argv
    run = Owned(os.open("/", os.O_RDONLY | os.O_DIRECTORY), int(uid)).folder(run_dir.lstrip("/"))
    record = record_of(run)
    results = results_of(run) if wants_results else Kept({}, "")
    paths = {"RECORD": "", "SUM_OF_RECORD": record.sum, "RESULTS": "", "SUM_OF_RESULTS": results.sum}
    with ExitStack() as held:
        given = []
        if record.files and record.sum != last_sum(marks, "uploaded"):
            given.append(record.files["run.json"])
            paths["RECORD"] = f"/proc/self/fd/{given[-1]}"
        if results.files and results.sum != last_sum(marks, "results"):
            given.append(held.enter_context(gathered(run, results.files)))
            paths["RESULTS"] = f"/proc/self/fd/{given[-1]}"
        return subprocess.run(command, env={**os.environ, **paths}, pass_fds=given, check=False).returncode


def last_sum(marks: str, name: str) -> str:
    """Of what was put last; empty before."""
    path = Path(marks, name)
    return path.read_text("utf-8").strip() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
