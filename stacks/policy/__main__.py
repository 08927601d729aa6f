"""The policy pack's program, which `pulumi preview --policy-pack stacks/policy` runs."""

import os
import sys
from pathlib import Path

# The engine makes this folder sys.path[0]. In a checkout that is not installed, `gangway` is found only so.
sys.path.append(str(next(top for top in Path(__file__).resolve().parents if (top / "gangway").is_dir())))

from gangway.stacks.base.extras import missing_extra

try:
    from gangway.stacks.policy.pack import serve
except ModuleNotFoundError as error:
    missing = missing_extra(error, "policy")
    if missing is None:
        raise
    print(f"error: {missing}", file=sys.stderr)
    sys.exit(2)

if "PULUMI_PROJECT" not in os.environ:
    print("stacks/policy is a policy pack: run `pulumi preview --policy-pack stacks/policy`", file=sys.stderr)
    sys.exit(2)
serve()
