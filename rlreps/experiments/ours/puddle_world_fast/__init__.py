"""Our best recipes on PuddleWorld: time to a given subspace distance."""
