"""`gangway reproduce`: a record run again, and whether the same came out.

    command    the arguments, and what is told at the end
    again      what a record asks for, and running it here with torchrun
    compare    two runs side by side: bits, losses, quality, and what could explain a difference

Runs on this machine only; nothing here starts a cloud.
"""
