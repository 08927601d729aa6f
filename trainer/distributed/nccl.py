"""Which NCCL this process has loaded, and whether that is the one which the plug-in of its network was qualified for.

torch's own `torch.cuda.nccl.version()` is the version that torch was compiled with. What answers its calls is another
library where one was preloaded.
"""

import ctypes
import os

SONAME = "libnccl.so.2"
QUALIFIED = "GANGWAY_NCCL_QUALIFIED"
"""The environment variable that names the version which the plug-in of the machine's network is qualified for."""


def loaded_nccl() -> str | None:
    """The version of the library that answers in this process; None where none is loaded. Loads none itself."""
    try:
        library = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    code = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(code))
    return _spelled(code.value)


def _spelled(code: int) -> str:
    """NCCL's number of a version, in the form it has had since 2.9.

    >>> _spelled(22807)
    '2.28.7'
    """
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"


def nccl_versions(backend: str) -> dict[str, str]:
    """What a record says of NCCL: the version loaded and the one wanted; nothing where NCCL carries nothing."""
    if backend != "nccl":
        return {}
    wanted = os.environ.get(QUALIFIED)
    return {"nccl": loaded_nccl() or "not found", **({"nccl-qualified": wanted} if wanted else {})}


def unqualified(versions: dict[str, str]) -> str:
    """What is to be said of `nccl_versions`; empty where the loaded one is the one wanted, or none is wanted."""
    loaded, wanted = versions.get("nccl"), versions.get("nccl-qualified")
    if wanted is None or loaded == wanted:
        return ""
    return f"NCCL {loaded} is loaded, and the plug-in of this machine's network is qualified for {wanted} alone"
