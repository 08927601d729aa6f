"""The `gangway` command line and what it does beside the Pulumi program: jobs, bills, reports, suites, simulation."""
