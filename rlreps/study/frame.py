"""Measurements in long form, from which figures, tables, files and verdicts are made."""

import dataclasses
import math
import operator
import string
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlreps.stats import Sample, aggregate
from rlreps.typing import ArrayLike, DoubleArray

Column = npt.NDArray[Any]
TableRows = Sequence[Mapping[str, object]]


class NotRunError(LookupError):
    """No measurement was selected: this preset leaves its runs out."""


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """A table with a row for each measurement: method, d, seed, step and distance, for example.

    Attributes:
        columns: Column → its values, [rows]; None where a row has none.
    """

    columns: Mapping[str, Column]

    @classmethod
    def of(cls, rows: TableRows) -> "Frame":
        """Make a frame of rows, which may lack columns."""
        names = dict.fromkeys(name for row in rows for name in row)
        return cls({name: _column([row.get(name) for row in rows]) for name in names})

    @classmethod
    def grid(cls, values: Mapping[str, ArrayLike], **axes: Any) -> "Frame":
        """Make a frame of arrays with a row for each entry.

        Args:
            values: Column → array that broadcasts to the lengths of the axes.
            **axes: The coordinates along each axis (a list, tuple, range or array), or one value
                for all rows.
        """
        places = {
            name: _column(list(each))
            for name, each in axes.items()
            if isinstance(each, list | tuple | range | np.ndarray)
        }
        shape = tuple(len(each) for each in places.values())
        count = int(np.prod(shape))
        index = np.indices(shape).reshape(len(shape), count)
        columns = {
            name: places[name][index[list(places).index(name)]]
            if name in places
            else _column([each] * count)
            for name, each in axes.items()
        }
        filled = {
            name: np.broadcast_to(np.asarray(each), shape).ravel() for name, each in values.items()
        }
        return cls({**columns, **filled})

    @classmethod
    def of_history(
        cls,
        history: Sequence[Mapping[str, Any]],
        members: Iterable[Mapping[str, Any] | int],
        **common: Any,
    ) -> "Frame":
        """Make a frame of the records of ``train_population``, a row for each member and step.

        Args:
            history: Records; a list value has one entry per member.
            members: Columns of each member, such as d and seed, or its seed alone.
            **common: Columns that all rows have.
        """
        listed = [each if isinstance(each, Mapping) else {"seed": each} for each in members]
        measured = [name for name, value in history[0].items() if np.shape(value) == (len(listed),)]
        return cls.concat(
            cls.grid(
                {name: [record[name][index] for record in history] for name in measured},
                step=[record["step"] for record in history],
                **common,
                **member,
            )
            for index, member in enumerate(listed)
        )

    @classmethod
    def concat(cls, frames: Iterable["Frame"]) -> "Frame":
        """Stack frames; a row has None in columns that its frame lacks."""
        kept = [each for each in frames if len(each)]
        names = dict.fromkeys(name for each in kept for name in each.columns)
        columns = {}
        for name in names:
            parts = [each.columns.get(name, np.full(len(each), None)) for each in kept]
            kinds = {part.dtype.kind for part in parts}
            if len(kinds) > 1 and not kinds <= {*"iuf"}:  # NumPy would turn numbers into text.
                parts = [part.astype(object) for part in parts]
            columns[name] = np.concatenate(parts)
        return cls(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def where(self, **wanted: Any) -> "Frame":
        """Select rows by columns.

        Args:
            **wanted: Column → its value, several allowed values (a list, tuple or range), or a
                function of the column that returns which rows to keep.
        """
        chosen = np.ones(len(self), np.bool_)
        for name, value in wanted.items():
            column = self.columns[name]
            if callable(value):
                chosen &= np.asarray(value(column), np.bool_)
            elif isinstance(value, list | tuple | range):
                if column.dtype == object:  # NumPy would compare words.
                    chosen &= np.array([each in value for each in column], np.bool_)
                else:
                    chosen &= np.isin(column, [*value])
            else:
                chosen &= np.asarray(column == value, np.bool_)
        return self._rows(chosen)

    def adding(self, **columns: Any) -> "Frame":
        """Return the frame with further columns: values [rows], or one for all."""
        whole = {
            name: each if isinstance(each, np.ndarray) else _column([each] * len(self))
            for name, each in columns.items()
        }
        return Frame({**self.columns, **whole})

    def long(self, value: str, index: str) -> "Frame":
        """Stack columns ``<value>_1``, ``<value>_2``, … into one, with rows for each.

        Args:
            value: The column that receives their values.
            index: The column that receives their numbers 1, 2, ….
        """
        numbered = {f"{value}_{number}": number for number in range(1, 1 + len(self.columns))}
        named = {name: numbered[name] for name in self.columns if name in numbered}
        rest = Frame({name: each for name, each in self.columns.items() if name not in named})
        return Frame.concat(
            rest.adding(**{index: number, value: self[name]}) for name, number in named.items()
        )

    def rows(self, *names: str) -> list[dict[str, Any]]:
        """Return columns as rows of a result file."""
        columns = [map(_plain, self.columns[name]) for name in names]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def groups(self, *names: str) -> dict[tuple[Any, ...], "Frame"]:
        """Split the rows by columns: values → rows, in the order of first occurrence."""
        if not len(self):
            return {}
        if not names:
            return {(): self}
        found: dict[tuple[Any, ...], list[int]] = {}
        columns = [_listed(self.columns[name]) for name in names]
        for row, values in enumerate(zip(*columns, strict=True)):
            found.setdefault(values, []).append(row)
        return {values: self._rows(rows) for values, rows in found.items()}

    def labelled(self, template: str) -> dict[str, "Frame"]:
        """Split the rows by a text such as "d = {d}"; a text without braces names a column."""
        if not template:
            return {"": self}
        text = template if "{" in template else f"{{{template}}}"
        names = fields_of(template)
        found: dict[str, list[Frame]] = {}
        for values, group in self.groups(*names).items():
            label = text.format(**dict(zip(names, values, strict=True)))
            found.setdefault(label, []).append(group)
        return {label: Frame.concat(each) for label, each in found.items()}

    def sample(self, value: str, unit: str, fewest: int = 2) -> Sample:
        """Average a column over the rows of each unit.

        Args:
            value: The column.
            unit: The column that names units, such as seeds.
            fewest: Least number of units with which the sample decides anything.

        Raises:
            NotRunError: For a frame without rows.
        """
        if not len(self):
            raise NotRunError(f"no row with {value}")
        table, units, _ = self.pivot(value, unit)
        return Sample(table[:, 0], units, fewest)

    def pivot(
        self, value: str, unit: str, x: str | None = None
    ) -> tuple[DoubleArray, list[Hashable], list[Any]]:
        """Arrange a column by units and places.

        Args:
            value: The column.
            unit: The column that names units.
            x: The column that names places, which are sorted; by default all rows share one place.

        Returns:
            Means over the rows of a unit and a place [units, p], NaN for none; units; places.
        """
        given = _listed(self.columns[unit])
        along = [0] * len(self) if x is None else _listed(self.columns[x])
        units = {each: number for number, each in enumerate(dict.fromkeys(given))}
        places = {each: number for number, each in enumerate(sorted({*along}, key=_order))}
        pairs = zip(given, along, strict=True)
        flat = [units[each] * len(places) + places[place] for each, place in pairs]
        values = np.asarray(self.columns[value], np.float64)
        counts = np.bincount(flat, minlength=len(units) * len(places))
        sums = np.bincount(flat, weights=values, minlength=len(units) * len(places))
        with np.errstate(invalid="ignore"):
            means = np.where(counts > 0, sums / counts, np.nan)
        return means.reshape(len(units), len(places)), [*units], [*places]

    def _rows(self, chosen: Any) -> "Frame":
        return Frame({name: column[chosen] for name, column in self.columns.items()})


def fields_of(template: str) -> list[str]:
    """List the columns that a text such as "d = {d}" names; a text without braces names one."""
    if not template or "{" not in template:
        return [template] if template else []
    return [name for _, name, _, _ in string.Formatter().parse(template) if name]


def aggregate_units(
    frame: Frame,
    keys: Sequence[str],
    value: str,
    unit: str,
    *,
    x: str | None = None,
    within: tuple[float, float] | None = None,
    beside: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Aggregate a column over units; return a row of a result file for each combination of keys.

    Args:
        frame: The measurements.
        keys: Columns that distinguish rows.
        value: The column to aggregate; values that are not finite are left out.
        unit: The column that names units.
        x: A further key, such as the step.
        within: Smallest and largest possible value, to which intervals are clipped.
        beside: Further columns. For a column of truth values, the number of units with at least one
            true value; for any other column, the value that all rows of a key share.

    Returns:
        Keys, ``runs``, the values of ``aggregate``, and ``beside``.
    """
    rows: list[dict[str, Any]] = []
    along = [] if x is None else [x]
    for values, group in frame.groups(*keys).items():
        for places, here in sorted(group.groups(*along).items(), key=operator.itemgetter(0)):
            named = dict(zip([*keys, *along], [*values, *places], strict=True))
            table, _, _ = here.pivot(value, unit)
            kept = table[np.isfinite(table)]
            figures = aggregate(kept, within=within) if len(kept) else {}
            extra = {name: _beside(here, name, unit) for name in beside}
            rows.append({**named, "runs": len(kept), **figures, **extra})
    return rows


def _beside(frame: Frame, name: str, unit: str) -> Any:
    column = frame[name]
    if column.dtype == np.bool_:
        return sum(bool(group[name].any()) for group in frame.groups(unit).values())
    return _plain(column[0])


def _column(values: list[Any]) -> Column:
    """Make an array of values, with dtype object if their types are mixed."""
    values = [_plain(each) for each in values]
    kinds = {type(each) for each in values}
    if kinds <= {int, float} or (len(kinds) == 1 and kinds <= {str, bool}):
        return np.asarray(values)
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _listed(column: Column) -> list[Any]:
    """List values with one NaN for all, which a dictionary finds again."""
    return [math.nan if each != each else each for each in column.tolist()]


def _order(value: Any) -> tuple[bool, bool, Any]:
    """Return a key that sorts numbers, words and then None."""
    return value is None, isinstance(value, str), 0 if value is None else value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
