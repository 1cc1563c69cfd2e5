"""Methods as the papers write them."""

_NAMES = {
    "danskin_empirical": "Danskin-empirical",
    "danskin_lissa": "Danskin-LISSA",
    "oracle": "oracle (exact weights)",
}


def method_name(name: str) -> str:
    """A method's name in words."""
    return _NAMES.get(name, name.replace("_", " "))
