"""The fault drill: `python -m tools.drill [FAULT ...] [--markdown FILE]`.

It causes each fault in a separate run, judges the outcome, and prints a table; exit code 1 where a saved image was
lost, or a job ended that could continue.
"""

import argparse
import contextlib
import itertools
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.data.packaged_data import prepare_digits
from tools.drill.cluster import Cluster, DrillError, Host, cable, hosts
from tools.drill.faults import FAULTS, Fault, nothing

CONFIG = PRESETS["dcgan-digits"].replace(
    {"kimg": 16, "checkpoint_kimg": 2, "stats_kimg": 0.25, "sample_kimg": 100, "metrics_samples": 32}
)
BEGIN, END = "<!-- drill: make drill -->", "<!-- end of drill -->"
HEADER = ("fault", "images lost", "seconds lost", "exit codes", "exact resume")


class Outcome(NamedTuple):
    """A run's outcome.

    Attributes:
        images_lost: made, and made again.
        saved_lost: of these, those that a checkpoint held.
        codes: each node's exit codes, in order.
        state: digests of the last state, by part; a session's workers are `workers`.
    """

    wall_sec: float
    images: int
    images_lost: int
    saved_lost: int
    codes: tuple[tuple[int, ...], ...]
    state: dict[str, str]
    workers: tuple[int, ...]


def main(argv: Sequence[str]) -> int:
    """Runs the drill."""
    parser = argparse.ArgumentParser(prog="python -m tools.drill", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"all where none is named: {', '.join(FAULTS)}")
    parser.add_argument("--markdown", type=Path, help=f"put the table between {BEGIN} and {END} of this file")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder for runs and logs, which stay there")
    asked = parser.parse_args(argv)
    if unknown := sorted(set(asked.faults) - set(FAULTS)):
        parser.error(f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    names = asked.faults or list(FAULTS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # with the network removed
    rows, failed = list[tuple[str, ...]](), list[str]()
    with _folder(asked.keep) as folder, hosts() as network:
        say("hosts are network namespaces" if network["head"].link else "no root: all on the loopback, no cable is cut")
        data = folder / "data"
        prepare_digits(data)
        undisturbed = _drill("nothing", nothing, 2, folder, network, data)
        say(f"{'undisturbed':26} {undisturbed.wall_sec:5.0f} s")
        for number, name in enumerate(names, 1):
            fault, nodes_min = FAULTS[name]
            say(f"{number:2} of {len(names)}: {name:26}", end="")
            try:
                outcome = _drill(name, fault, nodes_min, folder, network, data)
            except DrillError as error:
                failed.append(name)
                rows.append((name, "", "", "", f"not survived: {error}"))
                say(f" FAILED: {error}")
                continue
            rows.append(get_row(name, outcome, undisturbed))
            if problem := get_problem(name, outcome):
                failed.append(name)
            say(f" {' | '.join(rows[-1][1:])}{f' FAILED: {problem}' if problem else ''}")
    table = _table(rows)
    print(f"\n{table}")
    if asked.markdown:
        replace_table(table, asked.markdown)
    return 1 if failed else 0


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="gangway-drill-") as folder:
        yield Path(folder)


def say(text: str, end: str = "\n") -> None:
    """Prints a line of progress at once."""
    print(text, end=end, flush=True)


def _drill(name: str, fault: Fault, nodes_min: int, folder: Path, network: dict[str, Host], data: Path) -> Outcome:
    place = folder / name.replace(" ", "-")
    place.mkdir()
    (place / "config.json").write_text(CONFIG.to_json(), "utf-8")
    cluster = Cluster(place, network, data, nodes_min)
    began = time.monotonic()
    try:
        fault(cluster)
        return _outcome(cluster, time.monotonic() - began)
    except DrillError as error:
        logs = "".join(f"\n--- {node.host.name}\n{cluster.get_output(node)[-3000:]}" for node in cluster.nodes)
        raise DrillError(f"{error}{logs}") from None
    finally:
        cluster.close()
        for node in cluster.nodes:
            if node.host.link:
                cable(node.host, connected=True)


def _outcome(cluster: Cluster, wall_sec: float) -> Outcome:
    path = cluster.run_dir / "run.json"
    if not path.exists():
        raise DrillError("no record of the run")
    record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    sessions = record["sessions"]
    lost = sum(max(0, one["images_to"] - two["images_from"]) for one, two in itertools.pairwise(sessions))
    saved = saved_lost = 0
    for line in cluster.lines():
        if line.get("event") == "checkpoint":
            saved = line["images"]
        if line.get("event") == "resume":
            saved_lost += max(0, saved - line["images"])
    return Outcome(
        wall_sec,
        record["images"],
        lost,
        saved_lost,
        tuple(tuple(node.codes) for node in cluster.nodes),
        record["state_sha256"],
        tuple(session["world_size"] for session in sessions),
    )


def get_problem(name: str, outcome: Outcome) -> str:
    """Returns what should not have happened; empty for nothing."""
    if outcome.images != CONFIG.total_images:
        return f"ended at {outcome.images:,} of {CONFIG.total_images:,} images"
    one_checkpoint = round(CONFIG.checkpoint_kimg * 1000) + CONFIG.step_images
    allowed = one_checkpoint if name == "newest checkpoint damaged" else 0
    return f"{outcome.saved_lost:,} saved images lost" if outcome.saved_lost > allowed else ""


def get_row(name: str, outcome: Outcome, undisturbed: Outcome) -> tuple[str, ...]:
    """Returns the table's row, see HEADER."""
    if outcome.state == undisturbed.state:
        exact = "yes"
    elif 1 in outcome.workers:
        exact = "no: one worker's sums for a while"
    else:
        exact = "no"
    codes = "; ".join(" ".join(map(str, codes)) for codes in outcome.codes)
    return name, f"{outcome.images_lost:,}", f"{outcome.wall_sec - undisturbed.wall_sec:.0f}", codes, exact


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    lines = [HEADER, ("---", "---:", "---:", "---", "---"), *rows]
    return "\n".join(f"| {' | '.join(cell.splitlines()[0] if cell else '' for cell in line)} |" for line in lines)


def replace_table(table: str, path: Path) -> None:
    """Replaces the table in the file (SystemExit: the file has no place for it)."""
    text = path.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{path}: no place for the table: it goes between {BEGIN} and {END}")
    path.write_text(f"{before}{begin}\n{table}\n{end}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
