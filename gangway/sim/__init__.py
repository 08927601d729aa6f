"""`gangway simulate`: scenarios and traces, policies, results as tables and plots."""
