"""The NCCL version in this process, and the one that the network plug-in is qualified for. `torch.cuda.nccl.version()`
is the version torch was compiled with; a preloaded library may answer its calls.
"""

import ctypes
import os

SONAME = "libnccl.so.2"
QUALIFIED = "GANGWAY_NCCL_QUALIFIED"
"""Environment variable with the version that the machine's network plug-in is qualified for."""


def loaded_nccl() -> str | None:
    """Version of the loaded library, None if none is loaded. Does not load one."""
    try:
        library = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    code = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(code))
    return _format_version(code.value)


def _format_version(code: int) -> str:
    """Format NCCL's version number, which has this form since 2.9.

    >>> _format_version(22807)
    '2.28.7'
    """
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"


def nccl_versions(backend: str) -> dict[str, str]:
    """The loaded and the qualified NCCL version for the record; empty for other backends."""
    if backend != "nccl":
        return {}
    wanted = os.environ.get(QUALIFIED)
    return {"nccl": loaded_nccl() or "not found", **({"nccl-qualified": wanted} if wanted else {})}


def unqualified(versions: dict[str, str]) -> str:
    """A warning about `nccl_versions`; empty if the loaded version is qualified or none is named."""
    loaded, wanted = versions.get("nccl"), versions.get("nccl-qualified")
    if wanted is None or loaded == wanted:
        return ""
    return f"NCCL {loaded} is loaded, and the plug-in of this machine's network is qualified for {wanted} alone"
