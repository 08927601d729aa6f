"""Plans for people and for other tools: the text of `gangway plan`, side by side, and Infracost's JSON."""
