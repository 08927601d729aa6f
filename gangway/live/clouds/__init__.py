"""Nodes, logs and shells of each provider: one file each, as `gangway.live.nodes.Cloud` describes."""
