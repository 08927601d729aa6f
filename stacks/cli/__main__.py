"""`python -m stacks.cli`: the `gangway` command without its entry point."""

from stacks.cli.main import main

main()
