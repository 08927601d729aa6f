"""Builds the Pulumi CLI from the Go module registry, for tests on machines without it."""
