"""The trainer's Dockerfile and the cloud-init of nodes, rendered from Jinja2 templates by pure functions."""
