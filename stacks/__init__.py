"""The composition root: stack files, the Pulumi program, the offline plan, the sandbox and the `gangway` command.

Under the Pulumi engine this folder is `sys.path[0]`, so no file here may carry a standard-library name.
"""
