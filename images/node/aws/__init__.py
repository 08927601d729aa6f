"""What a machine on EC2 runs of this kind."""
