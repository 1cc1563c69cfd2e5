"""Published experiments: a frozen configuration and a run function each."""
