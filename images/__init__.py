"""The trainer's Dockerfile and the cloud-init of nodes, rendered from Jinja2 templates.

Functions are pure, for the offline plan and `Output.apply`.
"""
