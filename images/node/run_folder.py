"""Opens a custom command's run folder for upload. Needs only Python 3.9.

    python3 -m gangway.images.node.run_folder RUN_DIR UID MARKS COMMAND...

As in outbox.py, the job owns the folder and this runs as root: it skips links, FIFOs and other users' files. COMMAND
gets $RESULTS, a folder with hard links, if $SUM_OF_RESULTS (of names, sizes and times) is not in MARKS/results. The
exit code is COMMAND's, or 0 if nothing changed.
"""

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing

from gangway.images.node.outbox import Owned, link_files, link_results, read_mark, say

RESERVED_PREFIXES = (".launch", ".results-")
"""Of files of this machine and the launcher."""
MAX_FILES = 100_000
MAX_DEPTH = 50


def walk_files(folder: Owned, path: str = "", depth: int = 0) -> Iterator[tuple[str, os.stat_result]]:
    """The relative paths of the user's regular files, sorted by name in each folder."""
    for name in sorted(folder.names()):
        if not path and name.startswith(RESERVED_PREFIXES):
            continue
        try:
            found = os.stat(name, dir_fd=folder.at, follow_symlinks=False)
        except FileNotFoundError:  # deleted meanwhile
            continue
        if found.st_uid != folder.uid:
            say(f"skipping {path + name!r}: not written by the job")
        elif stat.S_ISREG(found.st_mode):
            yield path + name, found
        elif not stat.S_ISDIR(found.st_mode):
            say(f"skipping {path + name!r}: neither a file nor a folder")
        elif depth == MAX_DEPTH:
            say(f"skipping {path + name!r}: more than {MAX_DEPTH} levels deep")
        else:
            with closing(folder.folder(name)) as inner:
                yield from walk_files(inner, f"{path}{name}/", depth + 1)


def get_checksum(files: Sequence[tuple[str, os.stat_result]]) -> str:
    """A checksum of names, sizes and times; empty for no files."""
    lines = [f"{name!r} {found.st_size} {found.st_mtime_ns}" for name, found in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else ""


def link_tree(source: Owned, target: Owned, paths: Sequence[str]) -> None:
    """Links these files into a folder of this user, under their paths; opens and checks each again."""
    folders: dict[str, list[str]] = {}
    here = []
    for path in paths:
        folder, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(folder, []).append(rest)
        else:
            here.append(path)
    link_files(source, target, here)
    for folder, below in folders.items():
        os.mkdir(folder, 0o700, dir_fd=target.at)
        own = Owned(target.at, os.geteuid())
        with closing(source.folder(folder)) as inner, closing(own.folder(folder)) as outer:
            if inner.at >= 0:
                link_tree(inner, outer, below)


def main(argv: Sequence[str]) -> int:
    """Opens the files, and runs the command if any has changed."""
    run_dir, uid, marks, *command = argv
    run = Owned(os.open("/", os.O_RDONLY | os.O_DIRECTORY), int(uid)).folder(run_dir.lstrip("/"))
    files = list(walk_files(run))
    if len(files) > MAX_FILES:
        say(f"uploading the first {MAX_FILES} of {len(files)} files by name")
        files = files[:MAX_FILES]
    checksum = get_checksum(files)
    if not files or checksum == read_mark(marks, "results"):
        return 0
    with link_results(run, ()) as folder:
        link_tree(run, Owned(folder, os.geteuid()), [name for name, _ in files])
        paths = {"RESULTS": f"/proc/self/fd/{folder}", "SUM_OF_RESULTS": checksum}
        return subprocess.run(command, env={**os.environ, **paths}, pass_fds=[folder], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
