"""Copies of a Gymnasium environment's state, and keys that tell states apart.

What an environment and its wrappers hold is copied at once, by a pickle in memory, so that
references between objects survive a copy: the door that a task waits for stays the door in the
grid. Spaces, random generators, functions, modules, renderers and the environment itself are not
copied. Of an object with ``cloneState`` and ``restoreState``, such as an emulator of Atari, the
clone is copied, without its random numbers. MuJoCo's model is not copied.
"""

import hashlib
import io
import math
import pickle
import random
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlreps.errors import InputError, require

GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
"""Types of random generators."""

_SHARED: tuple[type, ...] = (
    gymnasium.Env,
    gymnasium.Space,
    gymnasium.envs.registration.EnvSpec,
    *GENERATORS,
    types.FunctionType,
    types.ModuleType,
    type,
)
COUNTERS = ("step_count", "_elapsed_steps", "_np_random_seed")
"""Attributes that count an episode's steps, in MiniGrid and in ``TimeLimit``, or tell its seed."""

_RENDERERS = ("pygame", "cv2", "matplotlib", "pyglet", "moviepy")
"""Packages of objects that are not copied; ``_SHARED`` has the other types."""


class _Pickler(pickle.Pickler):
    """Pickles what an environment holds; objects that are not copied become numbers."""

    def __init__(
        self,
        stream: io.BytesIO,
        known: dict[int, Any],
        constant: Collection[type],
        copied: tuple[type, ...],
    ) -> None:
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._known, self._constant, self._copied = known, constant, copied

    def persistent_id(self, obj: Any) -> tuple[int, Any] | None:
        if isinstance(obj, self._copied):
            return None
        clones = hasattr(type(obj), "cloneState")
        if not clones and type(obj) not in self._constant and not _is_shared(type(obj)):
            return None
        self._known[id(obj)] = obj
        if not clones:
            return id(obj), None
        return id(obj), obj.cloneState(include_rng=bool(self._copied))


_KNOWN: dict[type, bool] = {}


def _is_shared(kind: type) -> bool:
    """Tell whether objects of a type are not copied; this is asked of every object."""
    known = _KNOWN.get(kind)
    if known is None:
        package = str(getattr(kind, "__module__", "")).partition(".")[0]
        # A model is large and hardly ever changed while it is used.
        model = (package, kind.__name__) == ("mujoco", "MjModel")
        known = _KNOWN[kind] = issubclass(kind, _SHARED) or package in _RENDERERS or model
    return known


class _Unpickler(pickle.Unpickler):
    """Returns what an environment holds; a clone takes its object's place, or restores it."""

    def __init__(self, stream: io.BytesIO, known: dict[int, Any], *, restore: bool) -> None:
        super().__init__(stream)
        self._known, self._restore = known, restore
        self.generators: dict[int, Any] = {}

    def persistent_load(self, pid: tuple[int, Any]) -> Any:
        number, clone = pid
        found = self._known[number]
        if isinstance(found, GENERATORS):
            self.generators[number] = found
        if clone is None:
            return found
        if not self._restore:
            return clone
        found.restoreState(clone)
        return found


class OwnCopies:
    """Copies of an environment's state by a user's own functions."""

    def __init__(
        self,
        save: Callable[[Any], Any],
        restore: Callable[[Any, Any], object],
        key: Callable[[Any], Hashable] | None = None,
    ) -> None:
        """See ``enumerate_states`` for the functions."""
        self.save, self.restore = save, restore
        self.generators: list[Any] = []
        self.key = canonical if key is None else key

    def parts(self, state: Any) -> Mapping[tuple[int, str], Hashable]:
        """Return nothing: the parts of such a state have no names."""
        return {}


class StateCopies:
    """Copies of all that an environment and its wrappers hold.

    Attributes:
        env: The environment.
        counters: Names of attributes that keep their value at the start.
        constant: Types whose objects never change; they are not copied.
        random: Whether random generators are copied, too.
        generators: Random generators that the state that was restored last holds, in its order.
    """

    def __init__(
        self,
        env: Any,
        counters: Sequence[str],
        constant: Sequence[type] = (),
        *,
        random: bool = False,
    ) -> None:
        self._constant, self._copied = frozenset(constant), GENERATORS if random else ()
        self.env, self._layers = env, [env]
        while isinstance(self._layers[-1], gymnasium.Wrapper):
            self._layers.append(self._layers[-1].env)
        self._known: dict[int, Any] = {}
        self.generators: list[Any] = []
        self._fixed = [
            {name: vars(layer)[name] for name in counters if name in vars(layer)}
            for layer in self._layers
        ]

    def _held(self) -> list[dict[str, Any]]:
        return [{**vars(each), **fix} for each, fix in zip(self._layers, self._fixed, strict=True)]

    def save(self, env: Any) -> bytes:
        """Copy the state.

        Raises:
            InputError: If it cannot be copied.
        """
        stream = io.BytesIO()
        try:
            _Pickler(stream, self._known, self._constant, self._copied).dump(self._held())
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise InputError(
                "expected an environment whose state can be copied, or functions save and restore, "
                f"got {type(error).__name__}: {error}"
            ) from error
        return stream.getvalue()

    def restore(self, env: Any, state: bytes) -> None:
        """Put the environment into a state."""
        unpickler = _Unpickler(io.BytesIO(state), self._known, restore=True)
        held = unpickler.load()
        self.generators = [*unpickler.generators.values()]
        for layer, values in zip(self._layers, held, strict=True):
            vars(layer).clear()
            vars(layer).update(values)

    def key(self, state: bytes) -> Hashable:
        """Return what tells a state apart from others."""
        return tuple(self.parts(state).items())

    def parts(self, state: bytes) -> Mapping[tuple[int, str], Hashable]:
        """Return the attributes of a state, by layer and name, in a form that compares by value."""
        held = _Unpickler(io.BytesIO(state), self._known, restore=False).load()
        seen: dict[int, int] = {}
        return {
            (layer, name): canonical(value, seen, self._constant)
            for layer, values in enumerate(held)
            for name, value in sorted(values.items())
        }


def digest_of_key(key: Hashable) -> bytes:
    """Return a digest of a key: equal for equal keys, and as good as never for others.

    ``hash`` is none: Python's hashes of −1 and −2 are equal.
    """
    return hashlib.blake2b(_spelled(key).encode(), digest_size=16).digest()


def _spelled(key: Hashable) -> str:
    """Spell a key so that numbers of one value are spelled alike, whatever their type."""
    if isinstance(key, tuple):
        return f"({','.join(map(_spelled, key))})"
    if isinstance(key, bool | int | float) and math.isfinite(key) and key == int(key):
        return str(int(key))
    return repr(key)


def take_first_steps(environment: gymnasium.Env[Any, Any], seed: int, action: Any) -> None:
    """Take the steps in which wrappers and environments set attributes for good.

    ``gymnasium.make`` adds a wrapper that checks the first two steps.
    """
    for _ in range(2):
        environment.reset(seed=seed)
        environment.step(action)


def state_copies(
    env: Any,
    save: Callable[[Any], Any] | None = None,
    restore: Callable[[Any, Any], object] | None = None,
    key: Callable[[Any], Hashable] | None = None,
    *,
    counters: Sequence[str] = COUNTERS,
    constant: Sequence[type] = (),
    random: bool = False,
) -> StateCopies | OwnCopies:
    """Return how the states of an environment, just reset, are saved, restored and told apart.

    Args:
        env: The environment.
        save: Environment → its state; None copies all attributes.
        restore: (environment, state) → nothing; puts the environment into a saved state.
        key: State that ``save`` returned → what tells states apart; None is the state itself.
        counters: As for ``StateCopies``.
        constant: As for ``StateCopies``.
        random: As for ``StateCopies``.

    Raises:
        InputError: For one of ``save`` and ``restore`` alone.
    """
    require((save is None) == (restore is None), "both save and restore", "one of them")
    if save is None or restore is None:
        return StateCopies(env, counters, constant, random=random)
    return OwnCopies(save, restore, key)


def canonical(
    value: Any, seen: dict[int, int] | None = None, constant: Collection[type] = ()
) -> Hashable:
    """Return a value that is equal for equal structures of objects, references included.

    Numbers compare by value, whatever their type; so do sequences and arrays of one axis.
    """
    numbers = {} if seen is None else seen

    def of(value: Any) -> Hashable:
        if value is None or isinstance(value, bool | int | float | str | bytes | complex):
            return value
        if isinstance(value, np.generic):
            return value.item()  # type: ignore[no-any-return]
        if isinstance(value, GENERATORS):
            return "generator"
        if type(value) in constant or _is_shared(type(value)):
            return id(value)
        if isinstance(value, np.ndarray) and value.dtype != object:
            if value.ndim == 1:
                return tuple(value.tolist())
            return (value.dtype.str, value.shape, value.tobytes())
        if isinstance(value, tuple):
            return tuple(map(of, value))
        if id(value) in numbers:
            return ("reference", numbers[id(value)])
        numbers[id(value)] = len(numbers)
        if isinstance(value, dict):
            # As dictionaries compare: the order in which they were filled counts only if ordered.
            pairs = list(value.items())
            if not isinstance(value, OrderedDict):
                pairs.sort(key=lambda pair: repr(canonical(pair[0], {}, constant)))
            return tuple((of(key), of(each)) for key, each in pairs)
        if isinstance(value, set | frozenset):
            return tuple(sorted((canonical(each, {}, constant) for each in value), key=repr))
        if isinstance(value, list | deque | np.ndarray):
            return tuple(map(of, value))
        try:
            inner = sorted(vars(value).items())
        except TypeError:
            return (type(value).__qualname__, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
        return (type(value).__qualname__, tuple((name, of(each)) for name, each in inner))

    return of(value)
