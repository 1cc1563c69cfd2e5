"""Audits: what any network's features hold of a truth, their health, and what they buy."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
