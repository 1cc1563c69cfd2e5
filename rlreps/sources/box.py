"""Points in a box: uniform, or spread evenly over the distances from its middle."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.batch import Batch
from rlreps.operators import Weights
from rlreps.operators.hydrogen import radius


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BoxSource:
    """Points in the box [−D, D]².

    Attributes:
        half_width: D, [].
        radial: Whether points are uniform in the angle and in log(1 + r), up to the corners'
            radius, with log(1 + r) stratified. Otherwise they are uniform in the box.
    """

    half_width: Array
    radial: bool = dataclasses.field(metadata={"static": True})

    num_tasks = None
    """Targets are empty."""

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw points [num_rows, 2]; targets are [num_rows, 0]."""
        del num_tasks
        targets = jnp.zeros((num_rows, 0), self.half_width.dtype)
        uniform = jax.random.uniform(key, (num_rows, 2), self.half_width.dtype)
        if not self.radial:
            return Batch((2.0 * uniform - 1.0) * self.half_width, targets)
        # Hydrogen's ground state fills a thousandth of the box, its ninth state most of it: every
        # scale gets its share of the points.
        share = (jnp.arange(num_rows, dtype=uniform.dtype) + uniform[:, 0]) / num_rows
        corner = self.half_width * jnp.sqrt(jnp.asarray(2.0, self.half_width.dtype))
        distance = jnp.expm1(share * jnp.log1p(corner))
        angle = 2.0 * jnp.pi * uniform[:, 1]
        directions = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
        return Batch(distance[:, None] * directions, targets)

    def weights(self) -> Weights:
        """Return the inverse density of points, up to a factor; zero outside the box."""

        def weigh(positions: Array) -> Array:
            if not self.radial:
                return jnp.ones(len(positions), positions.dtype)
            distance = radius(positions)[:, 0]
            inside = jnp.all(jnp.abs(positions) < self.half_width, axis=1)
            return jnp.where(inside, distance * (1.0 + distance), 0.0)

        return weigh
