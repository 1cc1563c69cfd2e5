"""Speed of online principal component analysis: against NumPy, in k and features, scikit-learn.

    python scripts/benchmark_streaming.py --data MNIST_FOLDER --figure streaming-speed.png

Three comparisons, each side by side in one run on one machine:

- implicit Krasulina one row at a time against a NumPy loop over the same update, which follows C
  and C† by rank-one updates, too, with all of NumPy's threads and with one; and against its own
  limit, the update's products with C and C† and its two rank-one updates in a scan, with nothing
  between them;
- seconds a row as k and the number of features grow, with the slope on logarithmic axes: 1 is
  O(k · features);
- seconds of one pass and percent excess loss at its end for several batch sizes, against
  scikit-learn's ``IncrementalPCA``.

Without ``--data`` the rows are random with variances that fall as 1/i.
"""

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from sklearn.decomposition import IncrementalPCA
from threadpoolctl import threadpool_limits

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020.pca import PcaConfig, PcaProblem, make_problem
from rlreps.plotting import save_figure
from rlreps.plotting.style import plain_log_ticks, series_style, styled
from rlreps.sources.datasets import Observations, load_observations
from rlreps.streaming import RULES, PowerDecay, StreamingRule
from rlreps.streaming.passes import scan_updates

RATE, POWER = 10.0, 0.8
SLOPE_RULES = (
    "implicit_krasulina",
    "explicit_krasulina",
    "krasulina",
    "oja",
    "sanger",
    "mu_eigengame",
)
"""Those that cost O(k · features) a row. Incremental PCA and capped MSG rotate all components with
every update, O(k² · features); incremental MSG decomposes a matrix of all features."""


class Point(NamedTuple):
    """One pass of one method at one batch size."""

    method: str
    rows_per_update: int
    seconds: float
    percent_excess: float


def random_rows(count: int, features: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Gaussian rows with variances 1/i."""
    deviations = (1.0 / np.sqrt(np.arange(1, features + 1))).astype(np.float32)
    generator = np.random.default_rng(seed)
    return generator.standard_normal((count, features), np.float32) * deviations


def numpy_loop(
    rows: npt.NDArray[Any], start: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Implicit Krasulina in NumPy: C [features, k] and C† after one update for each row."""
    factor, inverse = start.copy(), np.linalg.pinv(start)
    for step, row in enumerate(rows, start=1):
        hidden = inverse @ row
        rate = RATE / step**POWER
        residual = row - factor @ hidden
        residual *= rate / (1.0 + rate * float(hidden @ hidden))
        back = inverse.T @ hidden
        energy = float(residual @ residual)
        direction = (inverse @ back) / (1.0 + energy * float(back @ back))
        factor += np.outer(residual, hidden)
        inverse += np.outer(direction, residual - energy * back)
    return factor, inverse


def bare_products(start: npt.NDArray[np.float32], rows: npt.NDArray[np.float32]) -> Any:
    """Factors after the products and rank-one updates of ``numpy_loop`` alone, without its scalars.

    The tiny steps make each row's products depend on the row before, so that none can be skipped.
    """

    def body(carry: tuple[jax.Array, jax.Array], row: jax.Array) -> tuple[Any, None]:
        factor, inverse = carry
        hidden = inverse @ row
        residual = row - hidden @ factor
        back = hidden @ inverse
        direction = inverse @ back
        factor = factor + 1e-9 * hidden[:, None] * residual[None, :]
        return (factor, inverse + 1e-9 * direction[:, None] * back[None, :]), None

    # Both [k, features], as the rule keeps them: rows of C and C† are contiguous.
    factor = jnp.asarray(start.T)
    inverse = jnp.asarray(np.linalg.pinv(start), jnp.float32)
    run = jax.jit(lambda factors, rows: jax.lax.scan(body, factors, rows)[0])
    return functools.partial(run, (factor, inverse), jnp.asarray(rows))


def one_pass(rule: StreamingRule, rows_per_update: int) -> Callable[[Any, Any], Any]:
    """A compiled pass over rows."""
    return jax.jit(lambda state, rows: scan_updates(rule, state, rows, rows_per_update))


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """The median time of a call, after one that is not counted."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def row_seconds(name: str, rows: npt.NDArray[np.float32], k: int, repeats: int) -> float:
    """Seconds a row of a rule, one row at a time."""
    rule = RULES[name].at_rate(rows.shape[1], k, PowerDecay(RATE, POWER))
    state, placed, run = rule.init(jax.random.key(0)), jnp.asarray(rows), one_pass(rule, 1)
    return median_seconds(lambda: run(state, placed), repeats) / len(rows)


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of a line through the points on logarithmic axes."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def compare_with_numpy(rows: npt.NDArray[np.float32], k: int, repeats: int) -> dict[str, float]:
    """Seconds a row: ours in float32, its bare products, NumPy's loop in float64 and float32.

    NumPy's with the threads that it takes by itself, which products this small are slower for, and
    with one.
    """
    start = 1e-2 * np.random.default_rng(0).normal(size=(rows.shape[1], k))
    found = {"rlreps float32": row_seconds("implicit_krasulina", rows, k, repeats)}
    bare = bare_products(start.astype(np.float32), rows)
    found["its products alone"] = median_seconds(bare, repeats) / len(rows)
    for dtype in (np.float64, np.float32):
        loop = functools.partial(numpy_loop, rows.astype(dtype), start.astype(dtype))
        for threads in (None, 1):
            with threadpool_limits(threads, user_api="blas"):
                seconds = median_seconds(loop, repeats)
            name = f"NumPy {np.dtype(dtype).name}, {'all threads' if threads is None else 'one'}"
            found[name] = seconds / len(rows)
    return found


def accuracy_against_time(
    problem: PcaProblem, k: int, batches: Sequence[int], repeats: int
) -> list[Point]:
    """One pass over all rows by ours and by scikit-learn's, for several batch sizes."""
    rows = problem.rows[np.random.default_rng(0).permutation(len(problem.rows))]
    placed, exact, points = jnp.asarray(rows), problem.exact_loss(k), []

    def point(method: str, batch: int, seconds: float, components: Any) -> None:
        excess = 100.0 * (problem.loss(np.asarray(components)) / exact - 1.0)
        points.append(Point(method, batch, seconds, excess))

    for name in ("implicit_krasulina", "incremental_pca"):
        rule = RULES[name].at_rate(rows.shape[1], k, PowerDecay(RATE, POWER))
        state = rule.init(jax.random.key(0))
        for batch in batches if name == "implicit_krasulina" else [b for b in batches if b >= k]:
            used = placed[: len(rows) - len(rows) % batch]
            run = one_pass(rule, batch)
            seconds = median_seconds(functools.partial(run, state, used), repeats)
            point(RULES[name].title, batch, seconds, rule.components(run(state, used)))
    for batch in (b for b in batches if b >= k):
        model = IncrementalPCA(k, batch_size=batch)
        seconds = median_seconds(functools.partial(_fit, model, rows), repeats)
        point("scikit-learn IncrementalPCA", batch, seconds, model.components_.T)
    return points


def _fit(model: Any, rows: npt.NDArray[np.float32]) -> None:
    model.fit(rows)


@styled
def plot_accuracy(points: Sequence[Point], title: str) -> Figure:
    """Seconds of a pass and percent excess loss against the rows of an update, a curve a method."""
    figure = Figure(figsize=(8.4, 4.2))
    panels = dict(
        zip(("seconds of one pass", "excess loss (%)"), figure.subplots(1, 2), strict=True)
    )
    for index, method in enumerate(dict.fromkeys(point.method for point in points)):
        own = [point for point in points if point.method == method]
        rows = [point.rows_per_update for point in own]
        for axes, heights in zip(
            panels.values(),
            zip(*((p.seconds, p.percent_excess) for p in own), strict=True),
            strict=True,
        ):
            axes.plot(rows, heights, label=method, **series_style(index))
    for label, axes in panels.items():
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_log_ticks(axes.xaxis)
        plain_log_ticks(axes.yaxis)
        axes.grid(visible=True)
        axes.set_xlabel("rows of an update")
        axes.set_ylabel(label)
    figure.suptitle(title)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def main() -> None:
    """Prints the three comparisons and draws the last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="as for `rlreps experiment online-pca`")
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--rows", type=int, default=5000, help="of the first two comparisons")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    print(f"machine: {os.cpu_count()} CPUs, {jax.default_backend()}, jax {jax.__version__}")
    if options.data is None:
        observations = Observations("random rows", random_rows(20_000, 784), None)
    else:
        try:
            observations = load_observations(options.data)
        except InputError as error:
            parser.error(str(error))
    problem = make_problem(PcaConfig(components=(options.k,)), observations)
    part = problem.rows[: options.rows]

    print(f"\none row at a time, k = {options.k}, {part.shape[1]} features of {problem.name}")
    found = compare_with_numpy(part, options.k, options.repeats)
    for name, seconds in found.items():
        ratio = seconds / found["rlreps float32"]
        print(f"  {name:27s} {1e6 * seconds:7.2f} µs a row, {ratio:5.1f} times rlreps'")

    print("\nµs a row as k and features grow (slope 1: in proportion)")
    for name in SLOPE_RULES:
        for label, sizes in (("k", (10, 20, 40, 80)), ("features", (392, 784, 1568, 3136))):
            shapes = [(784, n) if label == "k" else (n, options.k) for n in sizes]
            times = [
                row_seconds(name, random_rows(options.rows, features), k, options.repeats)
                for features, k in shapes
            ]
            listed = ", ".join(f"{n}: {1e6 * t:.1f}" for n, t in zip(sizes, times, strict=True))
            print(f"  {name:19s} {label:8s} {listed}; slope {slope(sizes, times):.2f}")

    batches = (1, 10, 20, 50, 100, 200, 500, 1000, 2000)
    points = accuracy_against_time(problem, options.k, batches, min(options.repeats, 3))
    print(f"\none pass over {problem.name}, k = {options.k}")
    for one in points:
        print(
            f"  {one.method:28s} {one.rows_per_update:5d} rows an update: {one.seconds:6.2f} s, "
            f"{one.percent_excess:.4f} % excess"
        )
    if options.figure is not None:
        title = f"One pass over {problem.name}, k = {options.k}"
        print(save_figure(plot_accuracy(points, title), options.figure))


if __name__ == "__main__":
    main()
