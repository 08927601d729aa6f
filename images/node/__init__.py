"""Python that machines of ours run beside their scripts: the standard library alone, Python 3.10 on.

The files are copied onto the machine as they are. Not for this repository's own programs to call, but for its tests.
"""
