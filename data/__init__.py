"""Released ground truths, as files of the package; see ``rlreps.successor.load``."""
