"""What stands in a Kubernetes cluster of Gangway's, whoever runs it: queues of teams, plugins, an autoscaler."""
