"""A pytest plugin: scikit-learn's own tests of IncrementalPCA, with StreamingPCA in its place."""

from rlreps.streaming import StreamingPCA


class IncrementalPCA(StreamingPCA):
    """The estimator with scikit-learn's name and parameters."""

    def __init__(self, n_components=None, *, whiten=False, batch_size=None):
        super().__init__(
            n_components,
            rule="incremental_pca",
            whiten=whiten,
            batch_size=batch_size,
            random_state=0,
        )


def pytest_collection_modifyitems(items):
    for item in items:
        assert hasattr(item.module, "IncrementalPCA")
        item.module.IncrementalPCA = IncrementalPCA
