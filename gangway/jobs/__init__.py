"""What runs a JobSpec on machines."""
