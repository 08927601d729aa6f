"""Writes components/catalog/<provider>/permissions.yaml from the services' and the providers' own models."""
