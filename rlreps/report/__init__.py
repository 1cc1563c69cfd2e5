"""Reports: one table and one self-contained HTML page."""

from rlreps.report.page import Section, write_report
from rlreps.report.table import Table, format_number

__all__ = ["Section", "Table", "format_number", "write_report"]
