"""The controller: watches intervals, decides by a policy, acts, and keeps or reverts each change."""
