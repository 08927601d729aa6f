"""`python -m gangway`: the `gangway` command."""

from gangway.entry import main

main()
