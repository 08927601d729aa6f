"""How the nodes of a job find each other: torchrun's rendezvous, authenticated tunnels, the workers' store."""
