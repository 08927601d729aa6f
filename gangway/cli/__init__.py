"""The `gangway` command, one thin file per subcommand.

Commands import heavy modules only when they run: `gangway --help` imports every file here and must stay fast.
"""
