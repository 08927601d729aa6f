"""What a machine on OpenStack runs of this kind."""
