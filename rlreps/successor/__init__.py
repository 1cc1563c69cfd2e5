"""The successor measure: methods that compute it, stores, released ground truths, learned features.

``fit`` learns features of the measure from a user's own transitions.

Names load on first use, so that reading a store needs no JAX and the command line starts quickly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
