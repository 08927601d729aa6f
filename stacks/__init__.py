"""The composition root. The Pulumi engine makes this folder sys.path[0]: no file here may have the name of a
standard-library module.
"""
