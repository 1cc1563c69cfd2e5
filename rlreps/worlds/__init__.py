"""Games as tables: their states, observations, exact truths, and a compiled copy to train in."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
