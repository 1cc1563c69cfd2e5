"""State representations for reinforcement learning on JAX: ground truth, losses, pictures.

``successor`` computes successor measures and loads released ones. ``losses``, ``encoders``,
``sources`` and ``training`` train a representation. ``subspace`` measures its error.
``streaming`` is online PCA. ``agents`` and ``envs`` put representations to use. Submodules load on
first use: ``import rlreps`` loads neither JAX nor matplotlib.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
