"""Ground truths: stores on disk, released matrices, and their principal subspaces."""
