"""`gangway plan`: a stack file, judged and priced offline. Nothing here asks a cloud."""
