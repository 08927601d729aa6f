"""Google Cloud components. Nothing is imported here: planning a slice must not load what calls the cloud.

>>> from gangway.components.gcp.slices import plan_slice
>>> plan_slice("v5p", chips=256).accelerator_type
'v5p-512'
"""
