"""`gangway simulate`: reads scenarios and traces, runs the policies, shows and draws what came out."""
