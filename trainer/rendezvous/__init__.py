"""How the nodes of a job meet: torchrun's rendezvous, authenticated tunnels, the workers' store."""
