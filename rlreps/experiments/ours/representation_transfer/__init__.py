"""Torsos that know the successor measure before agents learn the task with them."""
