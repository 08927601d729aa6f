"""`gangway plan`: checks and prices a stack file offline, without a cloud."""
