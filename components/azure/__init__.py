"""Azure: the parts of a stack, named as on AWS and Google Cloud. Imports nothing: planning must not load the SDK."""
