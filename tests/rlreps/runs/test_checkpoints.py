import shutil
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from rlreps import files
from rlreps.errors import InputError
from rlreps.runs.checkpoints import Checkpoints


class State(NamedTuple):
    step: Array
    params: dict
    empty: tuple


def a_state(seed=0):
    key = jax.random.key(seed)
    kernel = jax.random.normal(key, (2, 17, 13))
    params = {"kernel": kernel, "bias": jnp.zeros((2, 13)), "half": kernel.astype(jnp.bfloat16)}
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


def test_the_checkpoint_of_another_run_or_step_is_refused(tmp_path):
    Checkpoints(tmp_path, run="ours").save(7, a_state())
    with pytest.raises(InputError, match="got the checkpoint of another run"):
        Checkpoints(tmp_path, run="theirs").restore(7, a_state(1))
    shutil.copy(tmp_path / "7.npz", tmp_path / "9.npz")
    with pytest.raises(InputError, match=r"expected the step 9 in .*, got 7"):
        Checkpoints(tmp_path, run="ours").restore(9, a_state(1))


class Killed(BaseException):
    """Stands for whatever ends a process."""


@pytest.mark.parametrize("moment", ["before the rename", "before the deletion of an older one"])
def test_a_kill_leaves_every_complete_checkpoint_and_stops_no_later_save(
    tmp_path, monkeypatch, moment
):
    def die(*_, **__):
        raise Killed

    checkpoints = Checkpoints(tmp_path, run="ours")
    for step in (1, 2):
        checkpoints.save(step, a_state(step))
    with monkeypatch.context() as patch:
        # A killed process deletes nothing.
        patch.setattr(type(tmp_path), "unlink", die)
        if moment == "before the rename":
            patch.setattr(files.os, "replace", die)
        with pytest.raises(Killed):
            checkpoints.save(3, a_state(3))
    complete = [1, 2] if moment == "before the rename" else [1, 2, 3]
    again = Checkpoints(tmp_path, run="ours")
    assert again.steps() == complete
    for step in complete:
        np.testing.assert_array_equal(
            again.restore(step, a_state()).params["kernel"], a_state(step).params["kernel"]
        )
    again.save(4, a_state(4))
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert left == [f"{complete[-1]}.npz", "4.npz"]


def test_no_bit_that_changed_passes_unnoticed(saved, tmp_path):
    noticed, content = 0, (saved / "7.npz").read_bytes()
    for position in range(40, len(content), 97):
        changed = bytearray(content)
        changed[position] ^= 0x10
        (tmp_path / "7.npz").write_bytes(changed)
        try:
            assert is_the_saved_state(restore(tmp_path))
        except InputError:
            noticed += 1
    assert noticed > 0.8 * len(content) / 97  # The others are dates and attributes of the archive.


def test_an_array_whose_shape_is_damaged_is_refused(tmp_path):
    state = jnp.ones((640, 32))
    Checkpoints(tmp_path).save(7, state)
    content = (tmp_path / "7.npz").read_bytes()
    place = content.index(b"(640, 32)")
    for position in (*range(place, place + 9), content.index(b"\x93NUMPY")):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            (tmp_path / "7.npz").write_bytes(changed)
            with pytest.raises(InputError, match=r"corrupt .*7\.npz"):
                restore(tmp_path, state)


def test_a_damaged_checkpoint_names_the_one_before_it(tmp_path):
    for step in (5, 10):
        Checkpoints(tmp_path).save(step, a_state())
    (tmp_path / "10.npz").write_bytes((tmp_path / "10.npz").read_bytes()[:-100])
    with pytest.raises(InputError, match="delete this file to resume from step 5"):
        restore(tmp_path, step=10)
    (tmp_path / "10.npz").unlink()
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


def test_folders_of_an_earlier_version_are_refused_and_not_passed_over(tmp_path):
    (tmp_path / "500").mkdir()
    checkpoints = Checkpoints(tmp_path)
    for use in (checkpoints.latest_step, lambda: checkpoints.save(600, a_state())):
        with pytest.raises(InputError, match=r"STEP\.npz .*the folder 500 of an earlier version"):
            use()
