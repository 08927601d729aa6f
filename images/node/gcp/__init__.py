"""What a machine on Google Cloud runs of this kind."""
