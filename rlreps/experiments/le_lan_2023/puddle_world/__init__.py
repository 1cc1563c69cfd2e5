"""The paper's PuddleWorld protocol: subspace distance against d, for three methods."""
