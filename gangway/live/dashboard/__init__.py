"""The local web page of `gangway dashboard`: stacks, queues, jobs, runs and suites."""
