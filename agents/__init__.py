"""Deep Q-networks with features fitted to replay, priors and auxiliary tasks.

Names load on first use: importing this package loads neither JAX nor rlax.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
