"""Exported encoders compute the same without rlreps: the JAX program, and weights for PyTorch."""

import dataclasses
import itertools
import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from rlreps.app.export import export_run, torch_layers
from rlreps.app.job import run_job
from rlreps.app.jobs.train import Train
from rlreps.app.jobs.train_live import LiveConfig, TrainLive
from rlreps.app.trained_runs import load_encoder
from rlreps.encoders import MLP, Convolutional, FourierMLP
from rlreps.errors import InputError
from rlreps.runs.folder import RunFolder
from rlreps.successor import BoxGrid, load_ground_truth, save_matrix
from rlreps.training.config import TrainingConfig

TRAINING = TrainingConfig(
    encoder=FourierMLP(hidden=(16, 8), frequencies=3, activation="tanh"),
    num_features=3,
    steps=4,
    rows=32,
    tasks=8,
    num_seeds=2,
    evaluate_every=4,
    checkpoint_every=4,
)


def in_numpy(layers, state, values):
    """Compute what ``torch.nn.Sequential`` documents for these modules."""
    for index, (name, *sizes) in enumerate(layers):
        weight, bias = state.get(f"{index}.weight"), state.get(f"{index}.bias")
        if name == "Linear":
            assert weight.shape == (sizes[1], sizes[0])
            values = values @ weight.T + bias
        elif name == "ZeroPad2d":
            left, right, top, bottom = sizes[0]
            values = np.pad(values, ((0, 0), (0, 0), (top, bottom), (left, right)))
        elif name == "Conv2d":
            _, outgoing, side, stride = sizes
            height, width = ((length - side) // stride + 1 for length in values.shape[2:])
            found = np.zeros((len(values), outgoing, height, width))
            for row, column in itertools.product(range(height), range(width)):
                top, left = stride * row, stride * column
                patch = values[:, :, top : top + side, left : left + side]
                found[:, :, row, column] = np.einsum("bihw,oihw->bo", patch, weight) + bias
            values = found
        else:
            values = {
                "ReLU": lambda values: np.maximum(values, 0.0),
                "Tanh": np.tanh,
                "Flatten": lambda values: values.reshape(len(values), -1),
            }[name](values)
    return values


@pytest.mark.integration
def test_a_program_gives_the_bits_of_the_run_and_weights_give_its_features(
    rlreps, refused, toy_store, tmp_path
):
    numpy = pytest.importorskip("safetensors.numpy")
    run, out = tmp_path / "run", tmp_path / "encoder"
    run_job(Train(store=toy_store, config=TRAINING), run)
    trained = load_encoder(RunFolder(run), load_ground_truth(toy_store))
    about = json.loads(rlreps("export", run, "--out", out, "--seed", 1))
    assert (about["seed"], about["step"], about["features"]) == (1, 4, 3)
    params = jax.tree.map(lambda leaf: leaf[1], trained.params)
    # With the weights as constants, like the program: XLA folds them, which rounds otherwise.
    apply = jax.jit(lambda inputs: trained.encoder.apply(params, inputs))
    program = jax.export.deserialize(bytearray((out / "encoder.jax").read_bytes()))
    np.testing.assert_array_equal(program.call(trained.inputs), apply(trained.inputs))
    state = numpy.load_file(out / "encoder.safetensors")
    places = np.asarray(trained.inputs)
    cosines = np.cos(np.pi * places[:, :, None] * np.arange(1, about["cosines"] + 1))
    inputs = np.concatenate([places, cosines.reshape(len(places), -1)], axis=1)
    found = in_numpy(about["layers"], state, inputs)
    np.testing.assert_allclose(found, trained.features()[1], atol=1e-5)
    assert "a seed in [0, 1], got 2" in refused(
        "export", run, "--out", tmp_path / "no", "--seed", 2
    )


def test_a_run_of_another_kind_is_refused_before_its_store_is_sought(refused, tmp_path):
    RunFolder.create_or_resume(tmp_path / "sweep", kind="sweep", config={}, provenance={})
    said = refused("export", tmp_path / "sweep", "--out", tmp_path / "encoder")
    assert said.endswith("which holds a run of sweep")


@pytest.mark.integration
def test_frames_of_bytes_are_inputs_as_they_are(rlreps, tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    generator, store = np.random.default_rng(0), tmp_path / "store"
    frames = generator.integers(0, 256, (12, 6, 5, 2), np.uint8)
    save_matrix(store, generator.uniform(size=(12, 9)).astype(np.float32), observations=frames)
    encoder = Convolutional(channels=(3,), hidden=7)
    config = dataclasses.replace(TRAINING, encoder=encoder, rows=8)
    run_job(Train(store=store, config=config), tmp_path / "run")
    features = load_encoder(RunFolder(tmp_path / "run"), load_ground_truth(store)).features()[0]
    about = json.loads(rlreps("export", tmp_path / "run", "--out", tmp_path / "encoder"))
    assert about["inputs"] == {"shape": [6, 5, 2], "dtype": "uint8"}
    program = jax.export.deserialize(bytearray((tmp_path / "encoder/encoder.jax").read_bytes()))
    np.testing.assert_allclose(program.call(frames), features, atol=1e-5)
    inputs = (frames.astype(np.float32) - about["offset"]) * about["factor"]
    state = numpy.load_file(tmp_path / "encoder/encoder.safetensors")
    first = np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))
    np.testing.assert_allclose(in_numpy(about["layers"], state, first), features, atol=1e-5)


@pytest.mark.integration
def test_an_encoder_takes_positions_in_the_units_of_its_store(rlreps, tmp_path):
    grid = BoxGrid((-1.2, -0.07), (0.5, 0.07), (5, 4))
    matrix = np.random.default_rng(0).uniform(size=(20, 20)).astype(np.float32)
    save_matrix(tmp_path / "store", matrix, grid)
    run_job(Train(store=tmp_path / "store", config=TRAINING), tmp_path / "run")
    truth = load_ground_truth(tmp_path / "store")
    features = load_encoder(RunFolder(tmp_path / "run"), truth).features()[0]
    about = json.loads(rlreps("export", tmp_path / "run", "--out", tmp_path / "encoder"))
    program = jax.export.deserialize(bytearray((tmp_path / "encoder/encoder.jax").read_bytes()))
    np.testing.assert_allclose(program.call(truth.observations), features, atol=1e-5)
    inputs = (np.asarray(truth.observations) - about["offset"]) * about["factor"]
    np.testing.assert_allclose(inputs, truth.coordinates, atol=1e-6)


def lines_of_the_handbook(mark, folder):
    page = (Path(__file__).parents[3] / "docs/how-to/export.md").read_text(encoding="utf-8")
    (block,) = (text for text in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if mark in text)
    names = {}
    exec(block.replace("encoder/", f"{folder}/encoder/"), names)
    return names["features"]


@pytest.mark.integration
def test_the_lines_of_the_handbook_load_the_encoder_of_a_live_run(tmp_path):
    config = LiveConfig(training=TRAINING, horizon=10, discount=0.9)
    run_job(TrainLive(config=config), tmp_path / "run")
    about = export_run(tmp_path / "run", tmp_path / "encoder")
    assert about["inputs"] == {"shape": [2], "dtype": "float32"}
    assert lines_of_the_handbook("deserialize", tmp_path).shape == (1, 3)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("box", {}),
        ("vectors", {"method": "td", "steps": 2, "rows": 8}),
        pytest.param(
            "images", {"method": "td", "steps": 2, "rows": 8}, marks=pytest.mark.integration
        ),
        pytest.param(
            "indices", {"method": "td", "steps": 2, "rows": 8}, marks=pytest.mark.integration
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::rlreps.errors.FitWarning")
def test_a_fit_leaves_its_features_and_the_weights_of_its_network(kind, options, tmp_path):
    import rlreps

    generator = np.random.default_rng(0)
    observations = {
        "indices": generator.integers(6, size=80),
        "vectors": generator.uniform(size=(80, 2)).astype(np.float32),
        "box": generator.uniform(size=(80, 2)).astype(np.float32),
        "images": generator.integers(255, size=(80, 9, 12, 2)).astype(np.uint8),
    }[kind]
    box = generator.uniform(size=(80, 1)).astype(np.float32)
    data = {
        "observations": observations,
        "actions": box if kind == "box" else generator.integers(3, size=80),
        "terminals": np.isin(np.arange(80), (39, 79)),
    }
    rep = rlreps.successor.fit(data, num_features=3, **options)
    rep.save(tmp_path / "run")
    about = export_run(tmp_path / "run", tmp_path / "encoder")
    program = jax.export.deserialize(bytearray((tmp_path / "encoder/encoder.jax").read_bytes()))
    found = program.call(observations.astype(about["inputs"]["dtype"]))
    expected = rep.features(observations)
    assert np.abs(expected).max() > 0.0
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    # Networks of vectors and images have weights beside the program.
    assert bool(about["layers"]) == (kind in ("vectors", "images"))
    if kind == "box":
        with pytest.raises(InputError, match="no --seed"):
            export_run(tmp_path / "run", tmp_path / "encoder", seed=1)


@pytest.mark.parametrize(
    "encoder",
    [
        MLP(4, num_inputs=3, hidden=(5, 6), bias_scale=1.0),
        pytest.param(
            Convolutional(4, frame_shape=(10, 13, 2), channels=(3, 5), hidden=7),
            marks=pytest.mark.integration,
        ),
        Convolutional(4, frame_shape=(12, 9, 1), channels=(3, 2), hidden=7, kernel_size=4),
        pytest.param(
            Convolutional(4, frame_shape=(16, 11, 1), channels=(3, 2), hidden=7, unpadded=1),
            marks=pytest.mark.integration,
        ),
    ],
)
def test_modules_of_pytorch_compute_what_the_encoder_does(encoder):
    params = encoder.init(jax.random.key(0))
    shape = getattr(encoder, "frame_shape", (3,))
    inputs = np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)
    first = np.ascontiguousarray(inputs.transpose(0, 3, 1, 2)) if len(shape) == 3 else inputs
    found = in_numpy(*torch_layers(encoder, params), first)
    np.testing.assert_allclose(found, encoder.apply(params, inputs), atol=1e-4)
