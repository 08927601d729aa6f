"""What a machine on Azure runs of this kind."""
