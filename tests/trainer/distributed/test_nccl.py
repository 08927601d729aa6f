"""Which NCCL a process has loaded: the one that was preloaded, whatever another library brings by its own path."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gangway.trainer.distributed.nccl import QUALIFIED, nccl_versions, unqualified

NCCL = "int ncclGetVersion(int *v) {{ *v = {code}; return 0; }}"
# What libtorch_cuda.so is to libnccl.so.2.
TORCH = "int ncclGetVersion(int *); int torch_asks(void) { int v = 0; ncclGetVersion(&v); return v; }"
PROGRAM = """
import ctypes, sys
from gangway.trainer.distributed.nccl import loaded_nccl
print(loaded_nccl())
torch = ctypes.CDLL(sys.argv[1])
print(torch.torch_asks(), loaded_nccl())
"""


def compiled(folder: Path, name: str, text: str, *options: str) -> Path:
    """A shared library of a few lines."""
    folder.mkdir(exist_ok=True)
    (folder / "source.c").write_text(text)
    library = folder / name
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "source.c", *options], check=True)
    return library


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("preloads", "before", "after"), [(True, "2.28.7", "22807 2.28.7"), (False, "None", "23007 2.30.7")]
)
def test_what_answers_is_what_was_preloaded(tmp_path: Path, preloads: bool, before: str, after: str) -> None:
    soname = "-Wl,-soname,libnccl.so.2"
    own = compiled(tmp_path / "own", "libnccl.so.2", NCCL.format(code=23007), soname)
    qualified = compiled(tmp_path / "qualified", "libnccl.so.2", NCCL.format(code=22807), soname)
    rpath = f"-Wl,--disable-new-dtags,-rpath,{own.parent}"
    torch = compiled(tmp_path / "torch", "libtorch_cuda.so", TORCH, rpath, f"-L{own.parent}", "-l:libnccl.so.2")
    env = {**os.environ, "LD_LIBRARY_PATH": str(qualified.parent)}
    if preloads:
        env["LD_PRELOAD"] = str(qualified)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(torch)], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == [before, after]


def test_what_the_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(QUALIFIED, raising=False)
    assert nccl_versions("gloo") == {}
    assert nccl_versions("nccl").keys() == {"nccl"}
    assert unqualified(nccl_versions("nccl")) == ""
    monkeypatch.setenv(QUALIFIED, "2.28.7")
    assert nccl_versions("nccl")["nccl-qualified"] == "2.28.7"
    assert unqualified({"nccl": "2.28.7", "nccl-qualified": "2.28.7"}) == ""
    assert unqualified({"nccl": "2.30.7", "nccl-qualified": "2.28.7"}).startswith("NCCL 2.30.7 is loaded, and")
