"""A run's encoder in files that need no rlreps: what ``rlreps export`` writes."""

import dataclasses
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, export

from rlreps.app.jobs import train_live as live
from rlreps.app.jobs.train import KIND as TRAIN
from rlreps.app.trained_runs import (
    TrainedEncoder,
    load_config,
    load_encoder,
    required_store,
    restored,
)
from rlreps.config import from_json
from rlreps.cumulants import CUMULANTS
from rlreps.encoders import MLP, Convolutional, Encoder, FourierMLP, Params, Tabular
from rlreps.encoders.networks import same_padding
from rlreps.errors import FitWarning, InputError, require
from rlreps.files import require_free, write_atomically
from rlreps.numerics import as_inputs, matmul
from rlreps.runs.folder import RunFolder
from rlreps.successor.fitting.basis import FourierBasis
from rlreps.successor.fitting.behaviour import to_probabilities
from rlreps.successor.fitting.network_basis import NetworkBasis
from rlreps.successor.fitting.observed import Flattened
from rlreps.successor.fitting.representation import KIND as SUCCESSOR
from rlreps.successor.fitting.representation import SuccessorRepresentation
from rlreps.successor.truth.ground_truth import GroundTruth
from rlreps.training.config import METHODS, make_learner
from rlreps.training.on_store import ground_truth_for

PROGRAM, WEIGHTS, DESCRIPTION = "encoder.jax", "encoder.safetensors", "encoder.json"

PLATFORMS = ("cpu", "cuda", "tpu")

_MODULES: dict[str, list[str]] = {
    "elu": ["ELU"],
    "gelu": ["GELU", "tanh"],
    "identity": ["Identity"],
    "relu": ["ReLU"],
    "silu": ["SiLU"],
    "softplus": ["Softplus"],
    "tanh": ["Tanh"],
}
"""Activation → module of ``torch.nn`` and its arguments."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """An encoder to export.

    Attributes:
        apply: Inputs [b, ...] → features [b, d].
        inputs: Shape and type of one input.
        encoder: The network whose weights are written.
        params: Its parameters.
        about: Further entries of the description. ``offset`` and ``factor`` turn inputs into the
            network's inputs, (inputs − offset) · factor.
    """

    apply: Callable[[Array], Array]
    inputs: jax.ShapeDtypeStruct
    encoder: Encoder | None = None
    params: Params = None
    about: Mapping[str, Any]


def export_run(
    run_folder: Path, out: Path, seed: int | None = None, store: Path | None = None
) -> dict[str, Any]:
    """Write a run's encoder as a JAX program and, for some encoders, as weights for PyTorch.

    ``encoder.jax`` holds the serialized ``jax.export`` program: inputs [b, ...] → features [b, d]
    for any b, on a CPU, an NVIDIA GPU or a TPU. ``encoder.safetensors`` holds the state dict of a
    ``torch.nn.Sequential``, for perceptrons and convolutional networks. ``encoder.json`` describes
    the inputs and lists the modules of the ``Sequential``.

    Args:
        run_folder: Folder of a run of train, train-live or fit. The program of a fit computes
            ``SuccessorRepresentation.features``; its weights are those of the network F, before
            least squares replaced the last layer.
        out: Folder for encoder.jax, encoder.json and, for perceptrons and convolutional networks,
            encoder.safetensors (with the extra "export"). It is new or holds an earlier export.
        seed: Seed whose encoder is written; by default the run's first.
        store: Ground truth over the run's states; by default the store of the training run.

    Returns:
        The description, and ``files``.

    Raises:
        InputError: If the run or its store cannot be read, the folder holds other files, the run
            has no such seed, or the extra ``export`` is not installed.
    """
    require_free(out, "an export", own=(PROGRAM, WEIGHTS, DESCRIPTION))
    try:
        import flatbuffers  # noqa: F401  # jax.export needs it to serialize.
        from safetensors.numpy import save
    except ImportError as error:
        raise InputError(
            f"expected the extra export (pip install 'rlreps[export]'), got {error}"
        ) from error
    exported = _read(RunFolder(run_folder), seed, store)
    batch = jax.ShapeDtypeStruct(
        (*export.symbolic_shape("b"), *exported.inputs.shape), exported.inputs.dtype
    )
    program = export.export(jax.jit(exported.apply), platforms=PLATFORMS)(batch)
    layers, state = torch_layers(exported.encoder, exported.params)
    about = {
        "inputs": {"shape": list(exported.inputs.shape), "dtype": exported.inputs.dtype.name},
        "features": program.out_avals[0].shape[1],
        **exported.about,
        "cosines": getattr(exported.encoder, "frequencies", 0),
        "layers": layers,
    }
    files = [PROGRAM, DESCRIPTION]
    write_atomically(out / PROGRAM, bytes(program.serialize()))
    if layers:
        write_atomically(out / WEIGHTS, save(state))
        files.append(WEIGHTS)
    write_atomically(out / DESCRIPTION, json.dumps(about, indent=1).encode())
    return {**about, "files": [str(out / name) for name in files]}


def _read(folder: RunFolder, seed: int | None, store: Path | None) -> Exported:
    """Read what to export from a run's folder."""
    if folder.kind == SUCCESSOR:
        require(seed is None and store is None, "no --seed or --store with a fit", seed or store)
        return _fitted(SuccessorRepresentation.load(folder.path))
    truth: GroundTruth | None = None
    if folder.kind == live.KIND:
        others = ("environment", "target")
        stored = {name: value for name, value in folder.config.items() if name not in others}
        config = from_json(live.LiveConfig, stored, {**METHODS, **CUMULANTS}).training
        learner = make_learner(config, num_inputs=2)
        trained = restored(folder, config, learner, jnp.zeros((1, 2)))
    else:
        folder.require_kind(TRAIN)
        path = required_store(folder, store)
        truth = ground_truth_for(path, load_config(folder).num_features)
        trained = load_encoder(folder, truth)
    dtype, offset, factor = _units(trained, truth)
    seeds, encoder = trained.config.seeds, trained.encoder
    chosen = seeds[0] if seed is None else seed
    require(chosen in seeds, f"a seed in [{seeds[0]}, {seeds[-1]}]", chosen)
    params = jax.tree.map(lambda leaf: leaf[chosen - seeds[0]], trained.params)
    plain = bool((offset == 0.0).all() and (factor == 1.0).all())

    def apply(inputs: Array) -> Array:
        if dtype == np.uint8:
            inputs = as_inputs(inputs)
        elif not plain:
            inputs = (inputs - offset[None, :]) * factor[None, :]
        return encoder.apply(params, inputs)

    return Exported(
        apply=apply,
        inputs=jax.ShapeDtypeStruct(trained.inputs.shape[1:], dtype),
        encoder=encoder,
        params=params,
        about={
            "step": trained.step,
            "seed": chosen,
            "offset": offset.tolist(),
            "factor": factor.tolist(),
        },
    )


def _units(
    trained: TrainedEncoder, truth: GroundTruth | None
) -> tuple[np.dtype[Any], np.ndarray, np.ndarray]:
    """Return the type of observations, and the offset and factor to encoder inputs, [1] or [c]."""
    dtype, zero, one = trained.inputs.dtype, np.zeros(1, np.float32), np.ones(1, np.float32)
    if truth is None or isinstance(trained.encoder, Tabular):
        return dtype, zero, one
    if truth.observations.dtype == np.uint8:
        return np.dtype(np.uint8), zero, one / np.float32(255.0)
    if truth.observed is not None or truth.grid is None:
        return dtype, zero, one
    low, high = np.array([truth.grid.low, truth.grid.high], np.float32)
    return dtype, low, one / (high - low)


def _fitted(rep: SuccessorRepresentation) -> Exported:
    """Return the features of a fit as a JAX function, and the network F if there is one."""
    observed, basis = rep.observed, rep.solution.basis
    single = "observations of single precision, in which the exported function computes"
    require(not observed.double, single, "a large offset; subtract it and fit again")
    dtype = np.uint8 if observed.bytes else np.int32 if observed.num_states else np.float32
    inputs = jax.ShapeDtypeStruct(observed.shape, np.dtype(dtype))
    if observed.num_states is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # For states in which no row starts.
            table = jnp.asarray(rep.features(np.arange(observed.num_states)))
        return Exported(apply=lambda states: table[states], inputs=inputs, about={})
    forward, scales = jnp.asarray(rep.factors.forward), jnp.sqrt(jnp.asarray(rep.singular_values))
    assert isinstance(basis, FourierBasis | NetworkBasis)
    assert rep.behaviour_weights is not None  # ``load`` refuses a policy without weights.
    behaviour = jnp.asarray(rep.behaviour_weights, jnp.float32)

    def features(observations: Array) -> Array:
        rows = basis.program(observations)
        policy = to_probabilities(matmul(rows, behaviour), observed.num_actions)
        blocks = jnp.einsum("mp,pcd->mcd", rows, forward, precision="highest")
        found: Array = jnp.einsum("mcd,mc->md", blocks, policy, precision="highest")
        return found * scales.astype(jnp.float32)[None, :]

    if isinstance(basis, FourierBasis):
        return Exported(apply=features, inputs=inputs, about={})
    return Exported(
        apply=features,
        inputs=inputs,
        encoder=basis.networks.forward.encoder,
        params=basis.params["forward"],
        about={
            "offset": np.asarray(basis.inputs.offset).tolist(),
            "factor": np.asarray(basis.inputs.factor).tolist(),
        },
    )


def torch_layers(
    encoder: Encoder | None, params: Params
) -> tuple[list[list[Any]], dict[str, np.ndarray]]:
    """Describe a network as a ``torch.nn.Sequential``.

    Args:
        encoder: A perceptron, or a convolutional network, whose ``Sequential`` takes frames
            [b, channels, height, width].
        params: Its parameters.

    Returns:
        The modules, each as its name in ``torch.nn`` and its arguments, and the state dict. Both
        are empty for other encoders.
    """
    layers: list[list[Any]] = []
    state: dict[str, np.ndarray] = {}

    def add(module: list[Any], weight: np.ndarray, layer: Mapping[str, Array]) -> None:
        state[f"{len(layers)}.weight"] = np.ascontiguousarray(weight)
        state[f"{len(layers)}.bias"] = np.asarray(layer["bias"])
        layers.append(module)

    if isinstance(encoder, Flattened):
        encoder = encoder.encoder
    if isinstance(encoder, Convolutional):
        *convolutions, hidden, last = params
        height, width = encoder.frame_shape[:2]
        for index, layer in enumerate(convolutions):
            kernel = np.asarray(layer["kernel"])
            side, _, incoming, outgoing = kernel.shape
            padded = index >= encoder.unpadded
            rows, columns = (
                same_padding(length, side) if padded else (0, 0) for length in (height, width)
            )
            layers.append(["ZeroPad2d", [*columns, *rows]])
            add(["Conv2d", incoming, outgoing, side, 2], kernel.transpose(3, 2, 0, 1), layer)
            layers.append(["ReLU"])
            height, width = (
                (length + sum(zeros) - side) // 2 + 1
                for length, zeros in ((height, rows), (width, columns))
            )
        # PyTorch flattens maps with channels first; the encoder's maps have channels last.
        kernel = np.asarray(hidden["kernel"]).reshape(height, width, outgoing, -1)
        kernel = kernel.transpose(3, 2, 0, 1).reshape(kernel.shape[-1], -1)
        layers.append(["Flatten"])
        add(["Linear", *kernel.T.shape], kernel, hidden)
        layers.append(["ReLU"])
        kernel = np.asarray(last["kernel"])
        add(["Linear", *kernel.shape], kernel.T, last)
    elif type(encoder) in (MLP, FourierMLP):
        assert isinstance(encoder, MLP)
        for layer in params:
            kernel = np.asarray(layer["kernel"])
            add(["Linear", *kernel.shape], kernel.T, layer)
            layers.append(_MODULES[encoder.activation])
        layers.pop()
    return layers, state
