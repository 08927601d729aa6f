"""A Kubernetes cluster with JobSet and Kueue: kubectl is on PATH, and one of its contexts names the cluster."""
