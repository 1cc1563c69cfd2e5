"""Run things in folders of their own, and the command line.

``run_job(job, out)`` runs a job, goes on with it, or returns what a finished one found. Names load
on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
