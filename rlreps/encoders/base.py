"""What an encoder is, and how a Flax module becomes one."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import jax
from flax import linen, nnx
from jax import Array

from rlreps.errors import require

Params: TypeAlias = Any


class Encoder(NamedTuple):
    """An encoder.

    Attributes:
        init: key → parameters.
        apply: (parameters, inputs [b, ...]) → features [b, d].
        hidden: (parameters, inputs [b, ...]) → what each hidden layer puts out, after its
            activation, in order from the inputs: [b, ..., units] each. None where unknown.
    """

    init: Callable[[Array], Params]
    apply: Callable[[Params, Array], Array]
    hidden: Callable[[Params, Array], list[Array]] | None = None


def from_nnx(build: Callable[[nnx.Rngs], nnx.Module]) -> Encoder:
    """An encoder from a Flax NNX module's constructor.

    Args:
        build: ``rngs → module``; the module maps inputs [b, ...] to features [b, d] and keeps all
            its state in ``nnx.Param``. If its class has a method ``hidden_activations``, from
            inputs to a list of the hidden layers' activations, it becomes the encoder's ``hidden``.

    Returns:
        The encoder; its parameters are nested dictionaries of arrays.

    Raises:
        InputError: If the module keeps other state, such as batch statistics or random streams,
            which an optimizer would take for parameters.
    """
    module = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    graph, _ = nnx.split(module)
    other_state = nnx.to_flat_state(nnx.state(module, nnx.Not(nnx.Param)))
    others = sorted({type(variable).__name__ for _, variable in other_state})
    require(not others, "a module with all its state in nnx.Param", ", ".join(others))

    def init(key: Array) -> Params:
        _, state = nnx.split(build(nnx.Rngs(key)))
        return nnx.to_pure_dict(state)

    def apply(params: Params, inputs: Array) -> Array:
        features: Array = nnx.merge(graph, params)(inputs)
        return features

    def hidden(params: Params, inputs: Array) -> list[Array]:
        merged: Any = nnx.merge(graph, params)
        activations: list[Array] = merged.hidden_activations(inputs)
        return activations

    # Of the class: a layer that is called so would be callable too.
    known = callable(getattr(type(module), "hidden_activations", None))
    return Encoder(init, apply, hidden if known else None)


def from_linen(module: linen.Module, example_inputs: Array) -> Encoder:
    """An encoder from a Flax Linen module without mutable collections.

    Args:
        module: Maps inputs [b, ...] to features [b, d].
        example_inputs: Inputs [b, ...] of the shape and dtype to come, for initialisation.

    Returns:
        The encoder; its parameters are the module's variables.

    Raises:
        InputError: If the module has other collections than ``params``, such as batch statistics,
            which an optimizer would take for parameters.
    """
    shapes = jax.eval_shape(module.init, jax.random.key(0), example_inputs)
    others = sorted(set(shapes) - {"params"})
    require(not others, "a module without mutable collections", ", ".join(others))

    def apply(params: Params, inputs: Array) -> Array:
        # Without mutable collections the features come alone.
        return cast(Array, module.apply(params, inputs))

    return Encoder(lambda key: module.init(key, example_inputs), apply)
