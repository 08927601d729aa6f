"""The net under a rebuilding: what users see of Gangway, recorded from one tree and compared with that of another.

    PYTHONPATH=. .venv/bin/python tests/net.py record DIR     # of the tree in the working directory; some minutes
    PYTHONPATH=. .venv/bin/python tests/net.py compare DIR1 DIR2

Recorded are every shipped stack's plan, the texts that reach a machine or a builder (user data, node scripts,
Dockerfiles; in the plan they are packed, or secret), short training runs, and every command's help.
"""

import base64
import binascii
import difflib
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

TREE = Path.cwd()
VOLATILE = {
    r"content-[0-9a-f]{16}": "content-DIGEST",  # the trainer image's tag: a digest of the trainer's very files
    re.escape(str(TREE)): "TREE",
    r"\b\d+ days old\b": "N days old",  # of prices, today
    r'"gangway": "\d[^"]*"': '"gangway": "VERSION"',
}
"""What differs between two recordings though nobody has changed anything, and what stands for it."""
STATS = (
    *("images", "step", "kimg", "loss_g", "loss_d", "r1", "r2", "gp", "real_sign", "order", "augment_p", "resolution"),
    *("grad_norm_g", "grad_norm_d", "world_size"),
)
"""Of a line of stats.jsonl; the other values are times, or measured on the machine."""
COMMON = "--precision fp32 --seed 7 --dataset digits --resolution 32 --channels 1 --mirror false --metrics-kimg 0"
SMALL = f"{COMMON} --ngf 16 --ndf 16 --batch-size 12 --kimg 0.096 --stats-kimg 0.024 --metrics none"
RUNS = {
    "dcgan-1-worker": (1, f"--preset dcgan-digits {COMMON} --metrics none --kimg 2.048 --stats-kimg 0.256"),
    "dcgan-2-workers": (2, f"--preset dcgan-digits {COMMON} --metrics none --kimg 2.048 --stats-kimg 0.256"),
    "wgan-gp-2-workers": (2, f"--preset wgan-gp-cifar10 {SMALL}"),
    "r3gan-1-worker": (1, f"--preset r3gan-cifar10 {SMALL} --num-classes 10 --batch-gpu 4 --augment translation"),
    "progressive-2-workers": (2, f"--preset progan-celeba128 {SMALL} --stable-kimg 0.012 --fade-kimg 0.012"),
}
"""By name, the number of workers and the flags. The first two take a preset as it is, into a second epoch of the 1,797
digits: the first alone would not show another order of the epochs. The others are small."""
MODULES = ("gangway.trainer", "gangway.trainer.launch", "tools.bench")
SHOWN_LINES = 40


def main(argv: list[str]) -> int:
    """Runs `record` or `compare`; 0, 1 where the recordings differ, 2 for other arguments."""
    match argv:
        case ["record", folder]:
            record(Path(folder).resolve())
            return 0
        case ["compare", left, right] if Path(left).is_dir() and Path(right).is_dir():
            return compare(Path(left), Path(right))
    print(__doc__, file=sys.stderr)
    return 2


def record(folder: Path) -> None:
    """Writes the whole recording of the working directory's tree; every file is plain text."""
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder}: holds files already; name a new folder")
    os.environ.update(environment())
    stacks = sorted(path.name.split(".")[1] for path in Path("stacks").glob("Pulumi.*.yaml"))
    with ThreadPoolExecutor(2) as pool:
        for name, text in pool.map(plan, stacks):
            write(folder / "plans" / f"{name}.json", text)
    print(f"plans: {len(stacks)} stacks", flush=True)
    texts = {f"texts/{name}/{place}.txt": text for name in stacks for place, text in packed_texts(name)}
    for place, text in {**texts, **dockerfiles()}.items():
        write(folder / place, text)
    print(f"texts: {len(texts)} in planned resources, and the Dockerfiles", flush=True)
    with tempfile.TemporaryDirectory() as runs:
        for name in RUNS:
            write(folder / "training" / f"{name}.json", training_run(name, Path(runs)))
            print(f"training: {name}", flush=True)
    pages = dict(help_pages(gangway(), "gangway"))
    for module in MODULES:
        pages |= help_pages([sys.executable, "-m", module], f"python -m {module}")
    for name, text in pages.items():
        write(folder / "help" / f"{name}.txt", text)
    print(f"help: {len(pages)} pages\nrecorded in {folder}")


def environment() -> dict[str, str]:
    """For every command: nobody's account or prices, one thread a worker, one width of the page."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "PULUMI_", "GANGWAY_")):
            del os.environ[name]
    return {
        **{"GANGWAY_PRICES": "none", "PYTHONPATH": str(TREE), "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
        **{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    }


def output_of(command: list[str], allowed: tuple[int, ...] = (0,)) -> str:
    """What a command prints to stdout; its stderr where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in allowed:
        sys.exit(f"{' '.join(command)}: ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def gangway() -> list[str]:
    """The command as pyproject.toml names its entry point: an installed one may belong to another tree."""
    module, _, function = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]["scripts"][
        "gangway"
    ].partition(":")
    return [sys.executable, "-c", f"import sys; sys.argv[0] = 'gangway'; from {module} import {function} as f; f()"]


def plan(stack: str) -> tuple[str, str]:
    """A stack's plan as `gangway plan --json` prints it, packed texts unpacked."""
    found = json.loads(output_of([*gangway(), "plan", stack, "--json"], allowed=(0, 1)))
    return stack, json.dumps(unpacked(found), indent=1)


def unpacked(value: Any) -> Any:
    """Gzip's bytes depend on its build, and a digest inside them cannot be made out."""
    if isinstance(value, dict):
        return {key: unpacked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unpacked(item) for item in value]
    return (unzipped(value) or value) if isinstance(value, str) else value


def unzipped(text: str) -> str | None:
    """What base64 of gzip holds; None for any other text."""
    if not text.startswith("H4sI"):
        return None
    try:
        return gzip.decompress(base64.b64decode(text, validate=True)).decode()
    except (binascii.Error, OSError, UnicodeDecodeError):
        return None


def packed_texts(stack: str) -> Iterator[tuple[str, str]]:
    """Texts of several lines in a stack's planned resources, by where they are; secret ones and files too."""
    from gangway.stacks.loading.loader import from_file
    from gangway.stacks.plan.plan import make_plan

    for resource in make_plan(from_file(Path("stacks", f"Pulumi.{stack}.yaml"))).resources:
        label = f"{resource.type.rpartition(':')[2]}.{resource.name}"
        for place, text in texts_in(resource.inputs, label):
            readable = unzipped(text) or text
            if readable.count("\n") > 1:
                yield place, readable


def texts_in(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every text in a resource's inputs as on the wire, by its place."""
    import pulumi

    if isinstance(value, str):
        yield place, value
    elif isinstance(value, pulumi.StringAsset):
        yield place, value.text
    elif isinstance(value, pulumi.AssetArchive):
        yield from texts_in(value.assets, place)
    elif isinstance(value, dict):
        # A secret is a mapping of two: a signature, which is the same for all, and the value.
        for key, item in value.items():
            yield from texts_in(item, place if "value" in value and len(value) == 2 else f"{place}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts_in(item, f"{place}.{index}")


def dockerfiles() -> dict[str, str]:
    """The Dockerfile of every flavour, also of those that no shipped stack builds."""
    from gangway.images.render import render_dockerfile
    from gangway.images.specs import DOCKERFILE_FLAVOURS

    return {f"dockerfiles/{name}.txt": render_dockerfile(spec) for name, spec in DOCKERFILE_FLAVOURS.items()}


def training_run(name: str, folder: Path) -> str:
    """A run's final tensors by digest, its losses as they are, and the fields of its record, as JSON."""
    workers, flags = RUNS[name]
    run_dir = folder / name
    launcher = (
        f"gangway.trainer.launch --standalone --nproc-per-node {workers} -m gangway.trainer"
        if workers > 1
        else "gangway.trainer"
    )
    arguments = f"-m {launcher} train {flags} --run-dir {run_dir} --data {folder}/{name}-data"
    output_of([sys.executable, *arguments.split()])
    lines = [json.loads(line) for line in (run_dir / "stats.jsonl").read_text("utf-8").splitlines()]
    found = {
        "state": dict(state_leaves(max((run_dir / "checkpoints").glob("*.pt")))),
        "stats": [{key: line.get(key) for key in STATS} for line in lines if "event" not in line],
        "events": [line["event"] for line in lines if "event" in line],
        "stats keys": sorted({key for line in lines for key in line}),
        "record keys": sorted(set(key_paths(json.loads((run_dir / "run.json").read_text("utf-8"))))),
    }
    return json.dumps(found, indent=1)


def state_leaves(checkpoint: Path) -> Iterator[tuple[str, object]]:
    """Every value of a checkpoint by its path; of a tensor, the digest of its bits."""
    import torch

    def walk(value: Any, place: str) -> Iterator[tuple[str, object]]:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
        )
        for key, item in items:
            yield from walk(item, f"{place}/{key}")
        if isinstance(value, torch.Tensor):
            bits = value.contiguous().numpy().tobytes()
            yield place, f"{value.dtype} {list(value.shape)} {hashlib.sha256(bits).hexdigest()}"
        elif not isinstance(value, (dict, list, tuple)):
            yield place, value

    yield from walk(torch.load(checkpoint, weights_only=True), "")


def key_paths(value: Any, place: str = "") -> Iterator[str]:
    """The paths of all keys; entries of a list are one."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{place}/{key}"
            yield from key_paths(item, f"{place}/{key}")
    elif isinstance(value, list):
        for item in value:
            yield from key_paths(item, f"{place}/*")


def help_pages(command: list[str], name: str) -> Iterator[tuple[str, str]]:
    """The help of a command and of all below it, which are read off its page."""
    page = output_of([*command, "--help"])
    yield name, page
    # Typer draws a box; argparse indents by four, below a heading in capitals.
    boxed = page.partition("─ Commands ─")[2].partition("╰─")[0]
    listed = page.partition("positional arguments:")[2].partition("\n\n")[0]
    below = re.findall(r"^│ ([a-z][a-z0-9-]*) ", boxed, re.M)
    if re.search(r"^  [A-Z]+$", listed, re.M):
        below += re.findall(r"^    ([a-z][a-z0-9-]*)(?= |$)", listed, re.M)
    for sub in below:
        yield from help_pages([*command, sub], f"{name} {sub}")


def write(path: Path, text: str) -> None:
    """Writes a file of the recording, what is volatile taken out."""
    for pattern, stands_for in VOLATILE.items():
        text = re.sub(pattern, stands_for, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def compare(left: Path, right: Path) -> int:
    """Prints what differs, each file by its first lines, and a summary; 1 where anything does."""
    names = [
        {path.relative_to(side).as_posix() for path in side.rglob("*") if path.is_file()} for side in (left, right)
    ]
    for side, gone in ((left, names[0] - names[1]), (right, names[1] - names[0])):
        for name in sorted(gone):
            print(f"only in {side}: {name}")
    differing = [
        name for name in sorted(names[0] & names[1]) if (left / name).read_bytes() != (right / name).read_bytes()
    ]
    for name in differing:
        old, new = ((side / name).read_text("utf-8").splitlines() for side in (left, right))
        lines = list(difflib.unified_diff(old, new, f"{left}/{name}", f"{right}/{name}", n=1, lineterm=""))
        print("\n".join(lines[:SHOWN_LINES]))
        if len(lines) > SHOWN_LINES:
            print(f"... and {len(lines) - SHOWN_LINES} more lines")
    only = len(names[0] ^ names[1])
    print(f"{len(names[0] & names[1]) - len(differing)} files equal, {len(differing)} differ, {only} on one side only")
    return 1 if differing or only or not names[0] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
