"""Azure: the parts of a stack by the names they have on AWS and Google Cloud. Nothing is imported here: planning must
not load what talks to the cloud.
"""
