"""Batches from a matrix on disk: the same bits as from memory, and clear errors when it breaks."""

import os
import textwrap

import jax
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.sources.matrix import matrix_source
from rlreps.sources.store import StoreReader, raise_read_failure, streamed_source
from rlreps.subspace import ArrayBlocks, centre_in_place, centring_means, column_means
from rlreps.successor.truth.store import create_or_resume

# The last block is shorter than the others, and no block is a multiple of the centring's 64 rows.
NUM_STATES, NUM_TASKS, BLOCK_ROWS = 203, 900, 23


POSITIONS = np.random.default_rng(1).random((NUM_STATES, 2), np.float32)


def raw_matrix():
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.integers(-3, 3, NUM_TASKS)
    return (rng.gamma(0.3, size=(NUM_STATES, NUM_TASKS)) * scales).astype(np.float32)


def centred_matrix(centring="columns"):
    matrix = raw_matrix()
    centre_in_place(matrix, centring)
    return matrix


def means():
    """Blocked as the store is, which is not how the matrix in memory was centred."""
    return column_means(ArrayBlocks(raw_matrix(), BLOCK_ROWS))


WIDTHS = np.asarray([0.1, 0.02], np.float32)


def make_store(path):
    matrix = raw_matrix()
    store = create_or_resume(
        path, shape=matrix.shape, block_rows=BLOCK_ROWS, settings={}, provenance={}
    )
    for index in range(store.num_blocks):
        store.write_block(index, matrix[slice(*store.block_range(index))])
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("streamed") / "store")


def draw(source, key):
    return source.sample(key, 40, 25)


@pytest.mark.parametrize("cell_widths", [None, WIDTHS])
def test_batches_are_those_of_the_matrix_in_memory_bit_for_bit_however_they_are_mapped(
    store, cell_widths
):
    streamed = streamed_source(StoreReader(store, means()), POSITIONS, cell_widths=cell_widths)
    in_memory = matrix_source(centred_matrix(), POSITIONS, cell_widths=cell_widths)
    keys = jax.random.split(jax.random.key(5), 3)

    @jax.jit
    def scanned(source, keys):
        return jax.lax.scan(lambda _, key: (None, draw(source, key)), None, keys)[1]

    mapped = jax.jit(jax.vmap(draw, in_axes=(None, 0)))
    expected = mapped(in_memory, keys)
    jax.tree.map(np.testing.assert_array_equal, mapped(streamed, keys), expected)
    jax.tree.map(np.testing.assert_array_equal, scanned(streamed, keys), expected)


@pytest.mark.parametrize("centring", ["columns", "rows", "both"])
@pytest.mark.parametrize("num_columns", [5, 2 * NUM_TASKS])
def test_entries_are_those_of_the_centred_matrix(store, num_columns, centring):
    rng = np.random.default_rng(num_columns)
    rows, columns = rng.integers(0, NUM_STATES, 40), rng.integers(0, NUM_TASKS, num_columns)
    taken = centring_means(ArrayBlocks(raw_matrix(), BLOCK_ROWS), centring)
    found = StoreReader(store, *taken).entries(rows, columns)
    np.testing.assert_array_equal(found, centred_matrix(centring)[np.ix_(rows, columns)])


def truncate(store):
    """Leaves one row of a block."""
    os.truncate(store.block_file(3), 4 * NUM_TASKS)
    return "block 3 (rows 69-91, file c/3/0)", "bytes"


def spoil(store):
    with store.block_file(3).open("r+b") as file:
        file.write(np.full(BLOCK_ROWS * NUM_TASKS, np.nan, "<f4").tobytes())
    return "expected finite entries", "NaN or infinity"


@pytest.mark.parametrize("damage", [truncate, spoil])
def test_a_damaged_block_is_named_and_its_targets_are_nan(tmp_path, damage):
    store = make_store(tmp_path / "store")
    reader = StoreReader(store, means())
    words = damage(store)
    source = streamed_source(reader, POSITIONS)
    sample = jax.jit(lambda key: source.sample(key, NUM_STATES, 5).targets)
    assert np.isnan(sample(jax.random.key(0))).all()
    with pytest.raises(InputError) as error:
        raise_read_failure(source)
    for word in (str(store.path), "verify the store", *words):
        assert word in str(error.value)


@pytest.mark.parametrize("cut", [lambda found: found[:, :1], lambda found: found[0]])
def test_a_reader_that_returns_another_shape_is_named(cut):
    class Reader:
        shape = (NUM_STATES, NUM_TASKS)

        def entries(self, rows, columns):
            return cut(np.ones((len(rows), len(columns)), np.float32))

    source = streamed_source(Reader(), POSITIONS)
    assert np.isnan(source.sample(jax.random.key(0), 4, 3).targets).all()
    with pytest.raises(InputError, match=r"expected entries \(4, 3\) of 4 rows .*, got \("):
        raise_read_failure(source)


@pytest.mark.integration
def test_training_never_waits_for_itself(store, start_rlreps):
    """A callback can wait for the very threads that called it: with one core there is but one."""
    program = textwrap.dedent(
        """
        import os, sys
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import numpy as np, optax
        from rlreps.encoders import FourierMLP
        from rlreps.losses import LargeBatch
        from rlreps.sources.store import StoreReader, streamed_source
        from rlreps.successor.truth.store import open_store
        from rlreps.training import train
        store = open_store(sys.argv[1])
        inputs = np.random.default_rng(0).random((store.shape[0], 2), np.float32)
        reader = StoreReader(store, np.zeros(store.shape[1]))
        source = streamed_source(reader, inputs)
        for seeds, rows in (((0,), 50), ((0, 1, 2), 10_000)):
            train(FourierMLP(3, hidden=(16,)), LargeBatch(3), source, optimizer=optax.adam(1e-3),
                  steps=10, rows=rows, tasks=4, seeds=seeds, evaluate_every=5, checkpoint_every=5)
        sys.exit()
        """
    )
    process = start_rlreps(store.path, first=program)
    process.communicate(timeout=300)
    assert process.returncode == 0
