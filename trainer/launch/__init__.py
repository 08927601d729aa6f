"""Starting a job's workers on a node: torchrun behind a launcher, the store in which nodes meet, and how one leaves."""
