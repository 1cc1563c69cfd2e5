"""Run things in folders of their own, and the command line."""
