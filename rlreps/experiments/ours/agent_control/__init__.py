"""Agents in classic control: a sanity bar, and no auxiliary task against some."""
