"""Numbers as a reader wants them, for tables on a page or in a terminal."""

import math
import numbers

_MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: object, *, digits: int = 3) -> str:
    """A number as a reader wants it: three significant digits, thousands separated.

    Integers are exact. Other numbers of 1,000 and more lose their fraction; those below 0.001, and
    from ten million on, are given as a power of ten. Booleans are yes and no, None is a dash, and
    what is no number is its own text.

    Args:
        value: What to write; NumPy scalars and arrays of one number count as numbers.
        digits: Significant digits.
    """
    if isinstance(value, str):
        return value
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = value.item()
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}".replace("-", _MINUS)
    if isinstance(value, numbers.Real):
        return _format_real(float(value), digits)
    return str(value)


def _format_real(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else f"{_MINUS}∞"
    # Round first: 999.96 has to be treated as the 1,000 that it becomes.
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if float(mantissa) == 0:
        return "0"
    if -3 <= power < 7:
        text = f"{value:,.{max(digits - 1 - power, 0)}f}"
    else:
        text = f"{mantissa}·10{str(power).translate(_SUPERSCRIPTS)}"
    return text.replace("-", _MINUS)
