"""Google Cloud: TPU slices and what it takes to get them, planned from facts of the catalogue. Nothing is imported
here: a plan of a slice must not load what talks to the cloud.

    >>> from components.gcp.slices import plan_slice
    >>> plan_slice("v5p", chips=256).accelerator_type
    'v5p-512'
"""
