"""A machine that is about to be taken away: one interface for every source of the news.

`interruption` is what the loop asks in each step, `notices` the file in which a node's watcher (trainer.watch) tells
its workers, `scheduled_events` Azure's way of asking and answering. Nothing is imported here.
"""
