"""The interactive page of a successor measure, with its style sheet and scripts beside it."""
