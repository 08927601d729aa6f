"""What Gangway installs in a Kubernetes cluster of any provider: team queues, plugins, an autoscaler."""
