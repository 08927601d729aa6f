# The part of the package that this machine runs.
