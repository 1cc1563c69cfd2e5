"""Online principal component analysis.

Each rule is one frozen dataclass in ``rules``. ``Centred`` wraps a rule for observations that are
not centred. Two classes need extras and are imported on first use: ``StreamingPCA``, the
scikit-learn estimator (``rlreps[sklearn]``), and ``RiverPCA``, the river transformer
(``rlreps[river]``).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
