"""What a node runs, as text: the trainer's Dockerfile and the cloud-init of its nodes, from Jinja2 templates.

Every function is pure, so the same call serves the offline plan and `Output.apply`; nothing calls a cloud.
"""
