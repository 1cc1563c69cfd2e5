"""Audits: which components of a truth a network's features hold, their health, and their use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
