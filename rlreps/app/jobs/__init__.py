"""Everything that the command line runs in a folder, one module for each."""
