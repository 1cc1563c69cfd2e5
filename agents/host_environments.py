"""Environments that run on the host, many copies at a time, from Gymnasium and dm_env.

Agents see bounded coordinates scaled to [0, 1], images as bytes, and indices as unit vectors.
"""

import dataclasses
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import dm_env  # type: ignore[import-untyped]
import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit

from rlreps.agents.host_observations import HostInputs, map_observations
from rlreps.config import import_extra, import_object
from rlreps.envs import ARENAS  # Registers environments with Gymnasium, too.
from rlreps.envs.core import TimeStep
from rlreps.envs.from_dm_env import FromDmEnv
from rlreps.errors import InputError, own_code, require, require_positive
from rlreps.worlds.named import WORLDS

DM_ENV = "dm_env:"
"""Prefix of the names of dm_env environments."""

_ATARI_LIMIT = "max_num_frames_per_episode"
"""Argument for the step limit of Atari games; their specifications do not name it."""


class HostEnvironments:
    """Copies of an environment that are stepped together.

    The step after an episode's end ignores the copy's action: it starts an episode, with reward 0
    and the first observation (Gymnasium's next-step autoreset). Bounded coordinates of observations
    are scaled to [0, 1], images of bytes stay bytes, and discrete numbers become unit vectors.
    Gymnasium's copies come from the environment's own vector entry point if it has next-step
    autoreset, a limit of steps and a seed for each copy.

    Args:
        name: An id of Gymnasium, if necessary with the module that registers it before a colon, or
            ``dm_env:MODULE:FUNCTION``, a function or class without required arguments. A function
            that takes a ``seed`` gets one.
        num_envs: n, number of copies.
        max_episode_steps: Steps after which an episode is truncated, if the environment has no
            limit of its own. Environments of dm_env have no limit of their own. None is no limit.
        render: Whether pictures of copy 0 will be needed.

    Attributes:
        num_envs: n, number of copies.
        num_actions: Number of actions, counted from 0 whatever the environment calls them.
        observation_shape: Shape of one observation.
        observation_dtype: float32, or uint8 for images.
        max_episode_steps: Steps within which every episode ends; None if unknown.

    Raises:
        InputError: For an unknown name, a missing package, actions that are not discrete,
            observations that are not one array, or pictures of an environment that cannot be drawn.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        max_episode_steps: int | None = None,
        render: bool = False,
    ) -> None:
        require_positive("num_envs", num_envs)
        self._name, self.num_envs, self.max_episode_steps = name, num_envs, max_episode_steps
        self._as_seeds: Callable[[Sequence[int]], Any] = list
        self._environments: VectorEnv[Any, Any, Any]
        with quietly(), _making(name):
            if name.startswith(DM_ENV):
                limit = max_episode_steps

                def make_one() -> gymnasium.Env[Any, Any]:
                    copy = _ByName(name)
                    return copy if limit is None else TimeLimit(copy, limit)

                self._make_singly(make_one)
                self._draws = render and self._environments.render_mode is not None
            else:
                import_games(name)
                spec = gymnasium.spec(_import_module(name))
                if not self._make_together(spec, render):
                    self._make_of_spec(spec, render)
        try:
            actions = self._environments.single_action_space
            if not isinstance(actions, spaces.Discrete):
                raise InputError(f"expected {name} to have discrete actions, got {actions}")
            self.num_actions, self._first_action = int(actions.n), int(actions.start)
            seen = map_observations(self._environments.single_observation_space, name)
            self.observation_shape, self.observation_dtype, self._see = seen
            require(not render or self._draws, "an environment that draws itself", name)
        except InputError:
            self.close()
            raise

    def _make_together(self, spec: EnvSpec, render: bool) -> bool:
        """Make copies by an environment's own vector entry point, if it has a suitable one.

        The entry point must end its episodes, begin the next ones in the following step, and take a
        seed for each copy. With a single seed, an agent's episodes would depend on the number of
        agents.
        """
        limit = spec.max_episode_steps or spec.kwargs.get(_ATARI_LIMIT)
        if spec.vector_entry_point is None or spec.additional_wrappers or limit is None:
            return False
        known = inspect.signature(_creator(spec.vector_entry_point)).parameters
        self._draws = render and "render_mode" in known
        own = gymnasium.make_vec(
            spec, self.num_envs, vectorization_mode="vector_entry_point", **self._options()
        )
        if own.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
            forms: tuple[Callable[[Sequence[int]], Any], ...] = (list, np.array)
            for form in forms:
                # Whatever the exception is, the entry point takes no seed for each copy.
                with suppress(Exception):
                    own.reset(seed=form(range(self.num_envs)))
                    self._environments, self._as_seeds = own, form
                    self.max_episode_steps = int(limit)
                    return True
        own.close()
        return False

    def _make_of_spec(self, spec: EnvSpec, render: bool) -> None:
        """Make copies one by one, and cut their episodes if they have no limit of their own."""
        if spec.entry_point is None:
            raise gymnasium.error.Error(
                "it has no copies with next-step autoreset, a limit of steps (max_episode_steps) "
                "and a seed for each"
            )
        self.max_episode_steps = spec.max_episode_steps or self.max_episode_steps
        limited = dataclasses.replace(spec, max_episode_steps=self.max_episode_steps)
        modes = getattr(_creator(spec.entry_point), "metadata", {}).get("render_modes", [])
        self._draws = render and "rgb_array" in modes
        # The checker's remarks are meant for an environment's author.
        make_one = partial(gymnasium.make, limited, disable_env_checker=True, **self._options())
        self._make_singly(make_one)

    def _make_singly(self, make_one: Callable[[], gymnasium.Env[Any, Any]]) -> None:
        self._environments = SyncVectorEnv(
            [make_one] * self.num_envs, autoreset_mode=AutoresetMode.NEXT_STEP
        )

    def _options(self) -> dict[str, Any]:
        return {"render_mode": "rgb_array"} if self._draws else {}

    def reset(self, seeds: Sequence[int]) -> HostInputs:
        """Start an episode in every copy, [n, *observation].

        Args:
            seeds: Seeds in [0, 2^31), one for each copy. A copy's seed alone decides its randomness
                up to the next reset, whatever the other copies do.

        Raises:
            InputError: For observations that are NaN or infinite, or whatever the environment
                raises.
        """
        with own_code(f"{self._name} to start an episode"):
            raw, _ = self._environments.reset(seed=self._as_seeds(seeds))
        return self._seen(raw)

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> TimeStep:
        """Take an action [n] in each copy whose episode goes on: outcomes [n, ...], NumPy arrays.

        The state of the outcomes is ().

        Raises:
            InputError: For observations or rewards that are NaN or infinite, or whatever the
                environment raises.
        """
        chosen = np.asarray(actions, np.int64) + self._first_action
        with own_code(f"{self._name} to take a step"):
            raw, paid, terminated, truncated, _ = self._environments.step(chosen)
        # Copies: an environment may write its next step into the same arrays.
        with np.errstate(over="ignore"):
            rewards: Any = np.array(paid, np.float32)
        self._require_finite("rewards", rewards)
        ends: Any = (np.array(flags, np.bool_) for flags in (terminated, truncated))
        seen: Any = self._seen(raw)
        return TimeStep((), seen, rewards, *ends)

    def play(
        self,
        act: Callable[[HostInputs], npt.NDArray[np.integer[Any]]],
        seeds: Sequence[int],
        limit: int,
    ) -> npt.NDArray[np.float32]:
        """Play an episode in every copy for undiscounted returns [n].

        Args:
            act: Observations → actions.
            seeds: As for ``reset``.
            limit: Steps within which an episode should end, if ``max_episode_steps`` is unknown.

        Raises:
            InputError: If an episode does not end, or as ``step``.
        """
        seen = self.reset(seeds)
        alive = np.ones(self.num_envs, np.bool_)
        returns = np.zeros(self.num_envs, np.float32)
        limit = self.max_episode_steps or limit
        # Twice the limit: an environment may count its steps differently from Gymnasium.
        for _ in range(2 * limit):
            taken: Any = self.step(act(seen))
            returns += np.where(alive, taken.reward, np.float32(0.0))
            alive &= ~(taken.terminated | taken.truncated)
            seen = taken.observation
            if not alive.any():
                return returns
        raise InputError(
            f"expected every episode of {self._name} to end within {limit} steps, "
            f"got one that goes on after {2 * limit}"
        )

    def close(self) -> None:
        """Release the resources of the copies."""
        self._environments.close()

    def render(self) -> npt.NDArray[np.uint8]:
        """Return a picture of copy 0, [height, width, 3]."""
        with quietly(), own_code(f"{self._name} to draw itself"):
            pictures: Any = self._environments.render()
        return np.asarray(pictures[0], np.uint8)

    def _seen(self, raw: Any) -> HostInputs:
        seen = self._see(raw)
        self._require_finite("observations", seen)
        return seen

    def _require_finite(self, what: str, values: HostInputs) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            raise InputError(
                f"expected {self._name} to give finite numbers as {what}, got {values[~finite][0]}"
            )


def make_environment(name: str, seed: int = 0, **options: Any) -> Any:
    """Make a single environment, of Gymnasium or dm_env.

    Args:
        name: As for ``HostEnvironments``.
        seed: Given to the maker of a dm_env environment, if it takes one.
        options: Options of ``gymnasium.make``, for an environment of Gymnasium.

    Raises:
        InputError: For an unknown name, a missing package, or whatever the environment raises.
    """
    require_positive("seed", seed, least=0)
    with quietly(), _making(name):
        if not name.startswith(DM_ENV):
            import_games(name)
            return gymnasium.make(name, **options)
        return _factory(name)(seed)


def _creator(entry_point: Any) -> Callable[..., Any]:
    creator: Callable[..., Any] = (
        load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    )
    return creator


def _import_module(name: str) -> str:
    """Import the module before an id's colon, if any, and return the id."""
    module, colon, rest = name.partition(":")
    if not colon:
        return name
    require(all(module.split(".")), "a module's name before the environment's", name)
    importlib.import_module(module)
    return rest


def import_games(name: str) -> None:
    """Register the games of Atari or MinAtar if a name is one of them."""
    if name.startswith("MinAtar/") and name not in gymnasium.registry:
        import_extra("minatar.gym", "minatar", name).register_envs()
    if name.startswith("ALE/"):
        ale_py = import_extra("ale_py", "atari", name)
        # Its banner would break the progress bar.
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class _ByName(FromDmEnv):
    """An environment of dm_env by its name.

    A reset with a seed makes a new environment, with the seed if the maker takes one. If the maker
    takes no seed, it depends on the maker whether copies differ and whether runs repeat.
    """

    def __init__(self, name: str) -> None:
        self._make = _factory(name)
        super().__init__(self._make(0), name)
        seen, rewards = self.environment.observation_spec(), self.environment.reward_spec()
        one = isinstance(self.observation_space, spaces.Box | spaces.Discrete)
        require(one, f"{name} to have observations in one array of numbers", seen)
        scalar = getattr(rewards, "shape", None) == ()
        require(scalar, f"{name} to have scalar rewards", rewards)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.close()
            with quietly(), _making(self._name):
                self.environment = self._make(seed)
        return super().reset()

    def _taken(self, step: Any) -> Any:
        shape, expected = np.shape(super()._taken(step).observation), self.observation_space.shape
        require(shape == expected, f"{self._name} to give observations of shape {expected}", shape)
        return step


def _factory(name: str) -> Callable[[int], dm_env.Environment]:
    """Find the function seed → environment of a name ``dm_env:MODULE:FUNCTION``."""
    require(name.count(":") == 2, "dm_env:MODULE:FUNCTION", name)
    make = import_object(name.removeprefix(DM_ENV), "a function that makes a dm_env.Environment")
    require(callable(make), f"{name} to name a function", make)
    is_seeded = "seed" in inspect.signature(make).parameters

    def make_one(seed: int) -> dm_env.Environment:
        made = make(seed=seed) if is_seeded else make()
        require(isinstance(made, dm_env.Environment), f"{name} to make a dm_env.Environment", made)
        return made

    return make_one


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress the warnings of environments and of packages that they import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _making(name: str) -> Iterator[None]:
    with own_code(f"an environment that can be made from {name!r}"):
        try:
            yield
        except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
            got = f"{type(error).__name__}: {error}"
            raise InputError(
                f"expected an environment that can be made from {name!r}, got {got} If another "
                f"package registers it, name its module, too (MODULE:{name})"
            ) from error


def reaches_out(name: str) -> bool:
    """Tell whether making an environment imports a module, or reads a file, of its name."""
    kind, _, rest = name.partition(":")
    if kind == "world":
        return rest not in WORLDS
    if kind == "puddle-world":
        return bool(rest) and rest not in ARENAS
    return bool(rest) and kind != "gymnax"
