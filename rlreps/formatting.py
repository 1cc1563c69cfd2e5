"""Numbers as readers, JSON and CSV take them."""

import math
import numbers

_MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: object, *, digits: int = 3) -> str:
    """Format a value for a reader: three significant digits, thousands separated.

    Integers are exact. Other numbers of 1,000 and more lose their fraction; those below 0.001, and
    from ten million on, are written as a power of ten. Booleans are yes and no, None is a dash, and
    other values are written as text.

    Args:
        value: The value; NumPy scalars and arrays of one number count as numbers.
        digits: Significant digits.
    """
    if isinstance(value, str):
        return value
    value = plain_value(value)
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}".replace("-", _MINUS)
    if not isinstance(value, numbers.Real):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "∞" if number > 0 else f"{_MINUS}∞"
    # Round first: 999.96 must be treated as 1,000.
    mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
    power = int(exponent)
    if float(mantissa) == 0:
        return "0"
    if -3 <= power < 7:
        text = f"{number:,.{max(digits - 1 - power, 0)}f}"
    else:
        text = f"{mantissa}·10{str(power).translate(_SUPERSCRIPTS)}"
    return text.replace("-", _MINUS)


def plain_value(value: object) -> object:
    """Return the Python value of a NumPy scalar or array of one entry, and others as given."""
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        return value.item()
    return value


def finite_or_none(value: object) -> object:
    """Return a value in the form for JSON and CSV: None for NaN and infinity."""
    value = plain_value(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
