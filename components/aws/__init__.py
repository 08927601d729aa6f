"""AWS: EFA clusters, FSx for Lustre, spot capacity and budgets."""
