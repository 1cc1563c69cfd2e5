"""Environments in pure JAX, with Gymnasium and dm_env adapters."""
