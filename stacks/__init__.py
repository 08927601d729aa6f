"""The composition root. Under the Pulumi engine this folder is sys.path[0]: no file here may carry a standard-library
name.
"""
