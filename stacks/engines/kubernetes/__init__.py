"""Kubernetes, where one stands with JobSet and Kueue: kubectl is on PATH, and a context of its own names the cluster."""
