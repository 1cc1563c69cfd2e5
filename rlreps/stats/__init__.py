"""Intervals, contrasts and verdicts: numbers in, numbers out."""
