"""The whole run folder of a job's own command, opened for who puts it. With Python 3.9 alone.

    python3 -m images.node.run_folder RUN_DIR UID MARKS COMMAND...

As in outbox.py the folder is the job's and this runs as root: links, FIFOs and others' files are left out, and COMMAND
has $RESULTS, a folder of this user's own with hard links. It is run where $SUM_OF_RESULTS, made of names, sizes and
times, is not that in MARKS/results, and the exit code is its own; else 0.
"""

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing

from images.node.outbox import Owned, gathered, last_sum, link, say

OURS = (".launch", ".results-")
"""What begins so in the folder is this machine's, or the launcher's."""
MOST_FILES = 100_000
DEEPEST = 50


def listed(folder: Owned, path: str = "", depth: int = 0) -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file of the user's below a folder with its path there, folders in the order of their names."""
    for name in sorted(folder.names()):
        if not path and name.startswith(OURS):
            continue
        try:
            found = os.stat(name, dir_fd=folder.at, follow_symlinks=False)
        except FileNotFoundError:  # gone meanwhile
            continue
        if found.st_uid != folder.uid:
            say(f"{path + name!r} is left out: it is nothing that the job has written")
        elif stat.S_ISREG(found.st_mode):
            yield path + name, found
        elif not stat.S_ISDIR(found.st_mode):
            say(f"{path + name!r} is left out: neither a file nor a folder")
        elif depth == DEEPEST:
            say(f"{path + name!r} is left out: it is deeper than {DEEPEST} folders")
        else:
            with closing(folder.folder(name)) as inner:
                yield from listed(inner, f"{path}{name}/", depth + 1)


def sum_of_files(files: Sequence[tuple[str, os.stat_result]]) -> str:
    """What tells whether anything has changed; empty for no files."""
    lines = [f"{name!r} {found.st_size} {found.st_mtime_ns}" for name, found in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else ""


def link_all(source: Owned, target: Owned, paths: Sequence[str]) -> None:
    """Links these files into a folder of this user's own, under their paths; each is opened and looked at anew."""
    folders: dict[str, list[str]] = {}
    here = []
    for path in paths:
        folder, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(folder, []).append(rest)
        else:
            here.append(path)
    link(source, target, here)
    for folder, below in folders.items():
        os.mkdir(folder, 0o700, dir_fd=target.at)
        own = Owned(target.at, os.geteuid())
        with closing(source.folder(folder)) as inner, closing(own.folder(folder)) as outer:
            if inner.at >= 0:
                link_all(inner, outer, below)


def main(argv: Sequence[str]) -> int:
    """Looks, opens and runs the command where there is anything new."""
    run_dir, uid, marks, *command = argv
    run = Owned(os.open("/", os.O_RDONLY | os.O_DIRECTORY), int(uid)).folder(run_dir.lstrip("/"))
    files = list(listed(run))
    if len(files) > MOST_FILES:
        say(f"of {len(files)} files the first {MOST_FILES} by name are put")
        files = files[:MOST_FILES]
    total = sum_of_files(files)
    if not files or total == last_sum(marks, "results"):
        return 0
    with gathered(run, ()) as folder:
        link_all(run, Owned(folder, os.geteuid()), [name for name, _ in files])
        told = {"RESULTS": f"/proc/self/fd/{folder}", "SUM_OF_RESULTS": total}
        return subprocess.run(command, env={**os.environ, **told}, pass_fds=[folder], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
