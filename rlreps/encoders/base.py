"""The contract of an encoder, and encoders made of functions or Flax modules."""

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import jax
from jax import Array

from rlreps.config import configurable, name_of
from rlreps.errors import InputError, require

if TYPE_CHECKING:  # Flax takes longer to import than JAX.
    from flax import linen, nnx

Params: TypeAlias = Any
"""Parameters of an encoder: a pytree of arrays."""


class Encoder(abc.ABC):
    """An encoder φ: S → R^d and its configuration; subclasses are configurable dataclasses."""

    @property
    def name(self) -> str:
        """The class's name as options and files spell it."""
        return name_of(type(self))

    @abc.abstractmethod
    def init(self, key: Array) -> Params:
        """Draw parameters."""

    @abc.abstractmethod
    def apply(self, params: Params, inputs: Any) -> Array:
        """Compute features [b, d] of inputs: an array [b, ...], or a pytree of such arrays."""

    def hidden_activations(self, params: Params, inputs: Any) -> list[Array] | None:
        """Compute each hidden layer's output, [b, ..., units] each, in order from the inputs.

        Outputs are taken after the activation; None if the layers are unknown.
        """
        del params, inputs
        return None

    @property
    def is_layered(self) -> bool:
        """Whether parameters are layers, each used by one ``dense`` on the rows of the inputs."""
        return False


@configurable
@dataclasses.dataclass(frozen=True)
class FunctionEncoder(Encoder):
    """An encoder made of functions.

    Attributes:
        init_function: key → parameters.
        apply_function: (parameters, inputs [b, ...]) → features [b, d].
        is_layered: As for ``Encoder``; True for an ``MLP`` whose inputs or features are changed.
    """

    init_function: Callable[[Array], Params]
    apply_function: Callable[[Params, Array], Array]
    is_layered: bool = False

    def init(self, key: Array) -> Params:
        return self.init_function(key)

    def apply(self, params: Params, inputs: Array) -> Array:
        return self.apply_function(params, inputs)


def from_nnx(build: "Callable[[nnx.Rngs], nnx.Module]") -> Encoder:
    """Make an encoder from a Flax NNX module's constructor.

    Args:
        build: ``rngs → module``; the module maps inputs [b, ...] to features [b, d] and keeps all
            its state in ``nnx.Param``.

    Returns:
        The encoder; its parameters are nested dictionaries of arrays.

    Raises:
        InputError: If ``build`` is a module instead of its constructor, or if the module keeps
            other state, such as batch statistics or random streams, which an optimizer would treat
            as parameters.
    """
    from flax import nnx

    expected = "a function rngs → module, such as lambda rngs: nnx.Linear(2, 10, rngs=rngs)"
    is_module = isinstance(build, nnx.Module)
    require(not is_module, expected, f"a {type(build).__name__} that is already built")

    def made() -> nnx.Module:
        module = build(nnx.Rngs(0))
        kind = type(module).__name__
        require(isinstance(module, nnx.Module), expected, f"one that makes a {kind}")
        return module

    try:
        module = nnx.eval_shape(made)
    except TypeError as error:
        raise InputError(f"expected {expected}, got one that fails ({error})") from error
    graph, _ = nnx.split(module)
    other_state = nnx.to_flat_state(nnx.state(module, nnx.Not(nnx.Param)))
    variables = [each for _, each in other_state if isinstance(each, nnx.Variable)]
    others = sorted({type(each).__name__ for each in variables})
    # Arrays outside of variables. Flax counts the arrays that ``build`` makes as state in ``init``
    # alone, and the others here, too.
    arrays = [path for path, each in other_state if not isinstance(each, nnx.Variable)]
    arrays += [path for path, each in nnx.iter_graph(module) if isinstance(each, jax.Array)]
    others += [f"the array {'.'.join(map(str, path))}" for path in arrays]
    require(not others, "a module with all its state in nnx.Param", ", ".join(others))

    def init(key: Array) -> Params:
        _, state = nnx.split(build(nnx.Rngs(key)))
        return nnx.to_pure_dict(state)

    return FunctionEncoder(init, lambda params, inputs: cast(Any, nnx.merge(graph, params))(inputs))


def from_linen(module: "linen.Module", example_inputs: Array) -> Encoder:
    """Make an encoder from a Flax Linen module without mutable collections.

    Args:
        module: Maps inputs [b, ...] to features [b, d].
        example_inputs: Inputs [b, ...] of the shape and dtype to come, for initialisation.

    Returns:
        The encoder; its parameters are the module's variables.

    Raises:
        InputError: If the module has collections other than ``params``, such as batch statistics,
            which an optimizer would treat as parameters.
    """
    from flax import linen

    require(isinstance(module, linen.Module), "a Linen module, such as linen.Dense(10)", module)
    shapes = jax.eval_shape(module.init, jax.random.key(0), example_inputs)
    others = sorted(set(shapes) - {"params"})
    require(not others, "a module without mutable collections", ", ".join(others))
    return FunctionEncoder(
        lambda key: module.init(key, example_inputs),
        # Without mutable collections, ``apply`` returns the features alone.
        lambda params, inputs: cast(Array, module.apply(params, inputs)),
    )
