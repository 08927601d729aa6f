"""Plans as text: `gangway plan`, side by side, and Infracost's JSON."""
