"""Methods as the papers write them."""

from rlreps.losses import OBJECTIVES


def method_name(name: str) -> str:
    """Return a method's name in words."""
    return OBJECTIVES[name].title if name in OBJECTIVES else name.replace("_", " ")
