"""Run what the commands of the command line do."""
