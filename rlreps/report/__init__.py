"""Reports: one table and one self-contained HTML page."""

from rlreps.report.page import Report, Section, Table, format_number, write_report

__all__ = ["Report", "Section", "Table", "format_number", "write_report"]
