"""Prints the folder of the Pulumi CLI: the installed one's, or that of one built from the Go module registry.

    export PATH="$PATH:$(python -m tools.pulumi_cli)"

The build takes some twenty minutes of processor time, once; it is kept in the user's cache folder. Needs Go and the
module registry. Go's registry does not have Pulumi's Python language host: tests/engine/host stands in for it.
"""

import fcntl
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODULE = Path(__file__).parent
CLI, SDK = "github.com/pulumi/pulumi/pkg/v3", "github.com/pulumi/pulumi/sdk/v3"
HELPERS = ("python/cmd/pulumi-language-python-exec", "python/dist/pulumi-resource-pulumi-python")
"""What runs a Python program, and Python's dynamic providers, by their places in the SDK's module."""


class CliError(Exception):
    """There is no CLI here and none can be built; the text says why and what to do."""


def find_cli() -> Path | None:
    """The folder of the CLI on PATH, else of the one built earlier; None: there is none."""
    installed, built = shutil.which("pulumi"), build_folder()
    if installed is not None:
        return Path(installed).parent
    return built if (built / "pulumi").exists() else None


def build_folder() -> Path:
    """Where this version's build is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "gangway" / f"pulumi-{cli_version()}"


def cli_version() -> str:
    """The version that go.mod requires, as 3.274.1."""
    match = re.search(rf"^require {re.escape(CLI)} v(\S+)$", (MODULE / "go.mod").read_text("utf-8"), re.MULTILINE)
    assert match is not None, "go.mod requires the CLI"
    return match[1]


def build_cli() -> Path:
    """Builds the CLI unless it is there, once at a time; its folder. CliError: no Go, or the build failed."""
    if shutil.which("go") is None:
        raise CliError("pulumi and go are not on PATH: install the Pulumi CLI, or Go 1.26 or newer to build it")
    folder = build_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "pulumi").exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".build-") as unfinished:
                _build(Path(unfinished) / "cli")
                shutil.rmtree(folder, ignore_errors=True)
                (Path(unfinished) / "cli").replace(folder)
    return folder


def _build(folder: Path) -> None:
    folder.mkdir()
    packages = _go("list", "-deps", f"{CLI}/cmd/pulumi").split()
    flags = f"-s -w -X {SDK}/go/common/version.Version=v{cli_version()}"
    argv = ["go", "build", "-v", "-trimpath", "-ldflags", flags, "-o", str(folder / "pulumi"), f"{CLI}/cmd/pulumi"]
    _show(f"building Pulumi {cli_version()}: {len(packages)} packages")
    with subprocess.Popen(argv, cwd=MODULE, env=_environment(), stderr=subprocess.PIPE, text=True) as build:
        _follow(build, len(packages))
    if build.returncode:
        raise CliError(f"`{' '.join(argv[:2])} {argv[-1]}` failed with {build.returncode}; its output is above")
    sdk = Path(_go("list", "-m", "-f", "{{.Dir}}", SDK).strip())
    for helper in HELPERS:
        copy = Path(shutil.copy(sdk / helper, folder))
        copy.chmod(copy.stat().st_mode | stat.S_IWUSR | stat.S_IXUSR)


def _follow(build: "subprocess.Popen[str]", packages: int) -> None:
    assert build.stderr is not None
    compiled, shown_at = 0, time.monotonic()
    for line in build.stderr:
        if " " in line.strip():
            _show(line.rstrip())
            continue
        compiled += 1
        if time.monotonic() - shown_at >= 10.0:
            shown_at = time.monotonic()
            _show(f"compiled {compiled} of at most {packages} packages")


def _go(*words: str) -> str:
    done = subprocess.run(["go", *words], cwd=MODULE, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise CliError(f"`go {' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Versions and hashes are those of go.mod and go.sum, whatever the user's settings are."""
    return {**os.environ, "GOFLAGS": "-mod=readonly"}


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Prints the folder; 2 and a sentence where there is none."""
    try:
        print(find_cli() or build_cli())
    except CliError as error:
        _show(f"error: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
