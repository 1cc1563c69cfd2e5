import gc
import shutil
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from rlreps.errors import InputError
from rlreps.runs import checkpoints as checkpoint_module
from rlreps.runs.checkpoints import Checkpoints


class State(NamedTuple):
    step: Array
    params: dict
    empty: tuple


def a_state(seed=0):
    key = jax.random.key(seed)
    params = {"kernel": jax.random.normal(key, (2, 17, 13)), "bias": jnp.zeros((2, 13))}
    return State(jnp.full((2,), 7, jnp.int32), params, ())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints")
    Checkpoints(path).save(7, a_state())
    return path


def restore(path, template=None, step=7):
    return Checkpoints(path).restore(step, a_state(1) if template is None else template)


def is_the_saved_state(state):
    return all(
        first.dtype == second.dtype and np.array_equal(first, second)
        for first, second in zip(jax.tree.leaves(state), jax.tree.leaves(a_state()), strict=True)
    )


def test_a_state_comes_back_bit_for_bit_in_the_structure_of_its_template(saved):
    restored = restore(saved)
    assert isinstance(restored, State)
    assert jax.tree.structure(restored) == jax.tree.structure(a_state())
    assert is_the_saved_state(restored)
    assert is_the_saved_state(restore(saved, jax.eval_shape(a_state)))


def test_neither_a_part_of_a_checkpoint_nor_that_of_another_run_is_taken(tmp_path):
    Checkpoints(tmp_path, run="ours").save(7, a_state())
    with pytest.raises(InputError, match="got the checkpoint of another run"):
        Checkpoints(tmp_path, run="theirs").restore(7, a_state(1))
    shutil.copytree(tmp_path / "7", tmp_path / "9")
    with pytest.raises(InputError, match="got the checkpoint of step 7"):
        Checkpoints(tmp_path, run="ours").restore(9, a_state(1))
    (tmp_path / "9" / checkpoint_module._RECORD).unlink()
    assert Checkpoints(tmp_path, run="ours").complete_steps() == [7]


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


class Killed(BaseException):
    """Stands for whatever ends a process."""


@pytest.mark.parametrize("moment", ["the record", "the rename", "the deletion of an older one"])
def test_a_kill_leaves_every_complete_checkpoint_and_stops_no_later_save(
    tmp_path, monkeypatch, moment
):
    def die(*_, **__):
        raise Killed

    checkpoints = Checkpoints(tmp_path, run="ours")
    for step in (1, 2):
        checkpoints.save(step, a_state(step))
    with monkeypatch.context() as patch:
        if moment == "the record":
            patch.setattr(checkpoint_module.json, "dumps", die)
        elif moment == "the rename":
            patch.setattr(type(tmp_path), "rename", die)
        else:
            patch.setattr(checkpoint_module.shutil, "rmtree", die)
        with pytest.raises(Killed):
            checkpoints.save(3, a_state(3))
    complete = [2, 3] if moment == "the deletion of an older one" else [1, 2]
    again = Checkpoints(tmp_path, run="ours")
    assert again.complete_steps() == complete
    for step in complete:
        np.testing.assert_array_equal(
            again.restore(step, a_state()).params["kernel"], a_state(step).params["kernel"]
        )
    again.save(4, a_state(4))
    assert names(tmp_path) == [str(complete[-1]), "4"]


# Orbax meets some of the damage itself, and leaves coroutines of a closed loop to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_bit_that_changed_does_not_pass_unnoticed(saved, tmp_path):
    """Orbax alone returns other numbers without a word."""
    noticed = 0
    for position in range(0, 900, 60):
        copy = shutil.copytree(saved, tmp_path / str(position))
        largest = max(copy.rglob("d/*"), key=lambda file: file.stat().st_size)
        content = bytearray(largest.read_bytes())
        content[-1 - position] ^= 0x10
        largest.write_bytes(bytes(content))
        try:
            assert is_the_saved_state(restore(copy))
        except InputError:
            noticed += 1
    gc.collect()
    assert noticed > 5


def test_a_damaged_checkpoint_names_the_one_before_it(tmp_path):
    for step in (5, 10):
        Checkpoints(tmp_path).save(step, a_state())
    (tmp_path / "10" / "default" / "manifest.ocdbt").unlink()
    with pytest.raises(InputError, match=r"delete that folder to resume from step 5$"):
        restore(tmp_path, step=10)
    shutil.rmtree(tmp_path / "10")
    assert is_the_saved_state(restore(tmp_path, step=5))


@pytest.mark.parametrize(
    "template",
    [
        {"a": a_state(), "b": jnp.zeros(3)},
        State(jnp.zeros((2,), jnp.float32), a_state().params, ()),
    ],
    ids=["a leaf more", "another dtype"],
)
def test_a_checkpoint_of_another_structure_is_refused(saved, template):
    with pytest.raises(
        InputError, match=r"expected the arrays int32\[2\]|expected the arrays float32\[2\]"
    ):
        restore(saved, template)
