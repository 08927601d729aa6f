"""Python that machines run: the standard library, Python 3.10 or later. The files are copied to machines."""
