"""Experiments of Amid & Warmuth 2020."""
