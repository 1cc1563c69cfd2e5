"""Environments in pure JAX, with Gymnasium and dm_env adapters.

Names load on first use. Importing this package registers the environments with Gymnasium, which is
quick and does not load JAX.
"""

import lazy_loader

from rlreps.envs.registration import register

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

register()
