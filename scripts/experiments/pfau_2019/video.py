"""Bouncing balls: a video of equal discs that collide elastically in a box.

Source: Sutskever, Hinton & Taylor (2008), "The recurrent temporal restricted Boltzmann machine".
Pfau et al. (2019), "Spectral inference networks", learn slow features of these videos. The default
size and speed are theirs (radius 1.2 in a box of side 10; velocities of all three balls together of
norm 0.5 per frame). Two things differ: motion here is exact, while their balls move in steps of
half a frame and collide when they overlap; and the edges of balls are sharper here.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rlreps.config import configurable, interval, positive

EVENTS_PER_BALL = 100
"""Largest number of collisions per ball in a frame; valid parameters come nowhere near it."""

EDGE_WIDTH = 1.5
"""Pixels over which a disc's edge goes from black to white.

At the circle, brightness changes by one per pixel, like the covered part of a pixel. As a disc
moves by fractions of a pixel, its total brightness varies by 0.04 %; with a width of 1 it would
vary by 0.11 %.
"""

Motion = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""Positions, velocities, the rest of the frame, and the number of collisions so far."""


class BouncingBallsState(NamedTuple):
    """Centres (x, y) in [radius, 1 - radius]², velocities in sides of the square per frame.

    Both are [balls, 2].
    """

    positions: jax.Array
    velocities: jax.Array


@configurable
@dataclass(frozen=True, kw_only=True)
class BouncingBalls:
    """Equal hard discs in the unit square, without friction.

    ``reset`` draws from the stationary distribution. The motion is that of a Hamiltonian system
    with elastic collisions and reflecting walls, so it preserves the volume of phase space
    (Liouville) and the energy. Hence the uniform distribution over one energy surface (positions
    uniform over all positions without overlap, velocities uniform over a sphere) is the
    distribution of every later frame. So ``reset`` and ``move`` give consecutive frames without a
    burn-in.

    Attributes:
        num_balls: number of balls, few enough that random draws are often free of overlap.
        radius: radius of each ball, in sides of the unit square, in (0, 0.25].
        speed: root mean square of the balls' speeds, in sides of the square per frame, in (0, 1].
            The total energy is num_balls · speed² / 2 for balls of mass 1.
        frame_size: side of a frame in pixels, at most 1,024.

    Raises:
        InputError: a value outside its range.
    """

    num_balls: int = positive(3)
    radius: float = interval("(0, 0.25]", 0.12)
    speed: float = interval("(0, 1]", 0.03)
    frame_size: int = positive(64, most=1024)

    def reset(self, key: jax.Array) -> BouncingBallsState:
        """Draw a start from the stationary distribution.

        Positions are uniform over all positions without overlap: all balls are redrawn until none
        overlap. Velocities are uniform over all velocities of the stated energy: normal draws,
        rescaled.
        """
        position_key, velocity_key = jax.random.split(key)

        def draw(attempt: jax.Array) -> jax.Array:
            shape = (self.num_balls, 2)
            unit = jax.random.uniform(jax.random.fold_in(position_key, attempt), shape)
            return self.radius + (1.0 - 2.0 * self.radius) * unit

        def redraw(drawn: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            attempt = drawn[0] + 1
            return attempt, draw(attempt)

        first = jnp.zeros((), jnp.int32)
        _, positions = jax.lax.while_loop(
            lambda drawn: self._any_overlap(drawn[1]), redraw, (first, draw(first))
        )
        normals = jax.random.normal(velocity_key, positions.shape)
        norm = jnp.sqrt(jnp.sum(normals**2))
        velocities = normals * (self.speed * self.num_balls**0.5 / norm)
        return BouncingBallsState(positions, velocities)

    def move(self, state: BouncingBallsState) -> BouncingBallsState:
        """Move the balls for one frame, from each collision to the next.

        Exact up to rounding: energy is kept, balls do not overlap, and with reversed velocities the
        same frames run backwards. Simultaneous collisions are taken one after another. Positions
        and velocities keep their dtype.
        """
        most = EVENTS_PER_BALL * self.num_balls

        def goes_on(carry: Motion) -> jax.Array:
            _, _, remaining, events = carry
            return (remaining > 0.0) & (events < most)

        def to_next_event(carry: Motion) -> Motion:
            x, v, remaining, events = carry
            times = self._event_times(x, v)
            earliest = jnp.min(times)
            # Balls at a wall stay inside it to the last bit.
            moved = x + v * jnp.minimum(earliest, remaining)
            moved = jnp.clip(moved, self.radius, 1.0 - self.radius)
            which = jnp.arange(times.size, dtype=jnp.int32) == jnp.argmin(times).astype(jnp.int32)
            bounced = _bounce(moved, v, which & (earliest < remaining))
            return moved, bounced, jnp.maximum(remaining - earliest, 0.0), events + 1

        start = (*state, jnp.ones((), state.positions.dtype), jnp.zeros((), jnp.int32))
        x, v, _, _ = jax.lax.while_loop(goes_on, to_next_event, start)
        return BouncingBallsState(x, v)

    def render(self, state: BouncingBallsState) -> jax.Array:
        """Draw white discs on black.

        A disc's edge is a smooth step, ``EDGE_WIDTH`` pixels wide and centred on the circle, so
        that brightness is close to the part of each pixel that the disc covers.

        Returns:
            float32 [frame_size, frame_size] in [0, 1]. The y axis points up: row 0 is the top.
        """
        size = self.frame_size
        centres = state.positions.astype(jnp.float32)
        ticks = (jnp.arange(size, dtype=jnp.float32) + 0.5) / size
        across = (ticks[None, None, :] - centres[:, 0, None, None]) ** 2
        along = (1.0 - ticks[None, :, None] - centres[:, 1, None, None]) ** 2
        inside = (jnp.asarray(self.radius, jnp.float32) - jnp.sqrt(across + along)) * size
        ramp = jnp.clip(inside / EDGE_WIDTH + 0.5, 0.0, 1.0)
        # Two touching balls' steps add up to at most 1: s(u) + s(1 - u) = 1.
        return jnp.minimum(jnp.sum(ramp**2 * (3.0 - 2.0 * ramp), axis=0), 1.0)

    def _any_overlap(self, positions: jax.Array) -> jax.Array:
        gaps = positions[None, :, :] - positions[:, None, :]
        close = jnp.sum(gaps**2, axis=2) < (2.0 * self.radius) ** 2
        return jnp.any(jnp.triu(close, 1))

    def _event_times(self, x: jax.Array, v: jax.Array) -> jax.Array:
        """Return when each wall and each pair would be hit, infinity for never.

        Returns:
            [balls·2 + balls·balls], >= 0: a ball's wall along each axis, then pairs (i, j), of
            which only those with i < j are ever finite.
        """
        edge = jnp.where(v > 0.0, 1.0 - self.radius, jnp.zeros_like(x) + self.radius)
        still = v == 0.0
        walls = jnp.where(still, jnp.inf, (edge - x) / jnp.where(still, jnp.ones_like(v), v))
        gaps, closing = x[None, :, :] - x[:, None, :], v[None, :, :] - v[:, None, :]
        # |gap + t closing|² = (2 radius)² is a t² + 2 b t + c = 0; take its smaller root, in the
        # form that does not subtract nearly equal numbers.
        a, b = jnp.sum(closing**2, axis=2), jnp.sum(gaps * closing, axis=2)
        c = jnp.maximum(jnp.sum(gaps**2, axis=2) - (2.0 * self.radius) ** 2, 0.0)
        discriminant = b**2 - a * c
        meets = jnp.triu((b < 0.0) & (discriminant >= 0.0), 1)
        root = jnp.sqrt(jnp.where(meets, discriminant, jnp.ones_like(b)))
        pairs = jnp.where(meets, c / jnp.where(meets, root - b, jnp.ones_like(b)), jnp.inf)
        return jnp.maximum(jnp.concatenate([walls.ravel(), pairs.ravel()]), 0.0)


def _bounce(x: jax.Array, v: jax.Array, happens: jax.Array) -> jax.Array:
    """Return the velocities after the event, if any, that ``happens`` marks.

    A wall reverses one component; a pair exchanges the components along its line of centres.

    Args:
        x: [balls, 2], positions at the event.
        v: [balls, 2], velocities before it.
        happens: bool [balls·2 + balls·balls], in the order of ``_event_times``.
    """
    count = len(x)
    at_wall, at_pair = happens[: 2 * count].reshape(count, 2), happens[2 * count :]
    at_pair = at_pair.reshape(count, count)
    gaps, closing = x[None, :, :] - x[:, None, :], v[None, :, :] - v[:, None, :]
    # Divide by the actual gap, not by 2 radius: the exchange then keeps energy despite rounding.
    distance = jnp.where(at_pair, jnp.sum(gaps**2, axis=2), jnp.ones_like(gaps[:, :, 0]))
    share = jnp.where(at_pair, jnp.sum(gaps * closing, axis=2) / distance, 0.0)
    impulses = share[:, :, None] * gaps
    return jnp.where(at_wall, -v, v) + jnp.sum(impulses, axis=1) - jnp.sum(impulses, axis=0)
