"""What helps agents that see codes or images: learned features, joint losses, more units?

**Setting.** Deep Q-networks cross a maze to the goal in its corner: -1 a step, episodes of at most
300 steps, uniform starts. They see a fixed random code of their cell, and must learn which cells
are near each other. In ``sutton`` they see their position, and we expect no effect. In a second
setting of each maze, agents see an image of 8 x 8 pixels: the maze, and the agent as a disc in the
middle of its cell. Near cells have similar images, also across a wall.

Agents also play three games of gymnax, with images. In ``FourRooms`` they cross four rooms to a
goal within at most 100 steps. One move in three goes in another direction. The goal has a reward of
1, other cells have none. One channel of the image shows walls and the other the agent, whose
coordinates gymnax swaps. In ``Breakout`` and ``Asterix`` of MinAtar, agents collect points.

**Arms** each change one thing:

- from scratch: nothing, the baseline; wider network: more than four times as many weights;
- trainable embedding: a table of the distinct codes, trained with the network (mazes only);
- joint losses beside the temporal-difference loss, on the same torso: ``explicit`` per action for
  the policies that filled replay, large batch per state; data-free control: ``explicit`` with
  random functions of the observation itself as targets (discount 0; all three in mazes only);
- features without data in front of the network: random features, the true (x, y) in place of the
  code (mazes only), or fixed cosines of (x, y);
- learned components: frozen components of the successor measure of the random policy, fitted for
  each agent by ``rlreps.successor.fit`` (the distinct codes are counted) from its own steps without
  rewards, scaled by their singular values; exact components: components of the exact measure, an
  oracle;
- fitted to replay: the agent fits such components to its own replay after the warm-up and after
  5,000, 10,000, 20,000 and 40,000 steps, and reads them in addition to its observation; fitted
  once: only after the warm-up;
- random features beside the observation: normal random numbers in place of the components or, in
  MinAtar, random combinations of the Fourier features (not in ``sutton``);
- counted model, without a network: the agent counts its transitions and plans every ``plan_every``
  steps with optimal values of the counted model. An action that was not tried has the best possible
  value; in evaluations, it has the worst. The share of random actions is that of the other arms
  (mazes with codes, and ``FourRooms``).

Agents that see images have four of the arms with networks: from scratch, wider network, fitted to
replay, and random features beside the observation. Their networks are small, as the images are: one
convolution of 16 channels and a hidden layer of 64 units (wider: 40 and 160). Features of replay
join the network's features in a further hidden layer of 64 units. Positions and the images of
MinAtar hardly repeat; fits to them take 256 random Fourier features.

**Budget.** Arms with learned or exact components train for ``base.steps`` steps. All other arms in
arenas train longer, by the number of steps without rewards. In games all arms have ``game_steps``
steps. All arms share seeds.

**Metrics.** Two metrics: whether an agent reaches the threshold in two of three consecutive
evaluations, and its mean return over the whole budget. The threshold is a multiple of the optimal
return, which is minus the least expected number of steps. During steps without rewards, an agent
counts as one that never arrives. The *gap* is the optimal return minus the mean return from
scratch. In ``FourRooms`` the return is the share of episodes that reach the goal: the threshold is
0.9, and the optimal return counts as 1. MinAtar's games have the mean return alone.

**Goals**, by 95 % intervals of paired differences and p < 0.05 adjusted for all comparisons of the
goal (Holm). A goal that names no setting must be met in at least two of three mazes with codes:

- learned components: 50 points more agents at the threshold than from scratch and than with the
  wider network (exact sign tests). Second claim: learned components also beat every arm with
  features without data;
- joint losses: some objective gains 25 % of the gap in mean return over both the baseline and the
  data-free control, in the same mazes (sign flips);
- fitted to replay: 50 points more agents at the threshold, or 25 % of the gap in mean return, than
  from scratch and than with the wider network, at equal steps. ``spiral`` and its seeds were not
  used to develop these arms; a separate claim judges this maze alone. A third claim takes six
  settings, mazes with codes and mazes with images, of which at least four must have the effect.
  Its 24 comparisons need more than 20 agents to show 50 points, so that only returns can decide it.

In ``FourRooms`` the goal of features fitted to replay is the same. In both games of MinAtar, their
mean return should be higher than from scratch and than with the wider network. The last claim is
that counted models have a higher mean return than features fitted to replay, in every setting that
has both arms.

**Chosen beforehand** on seeds from 1000 on in ``five_corridors``: the agents' options were chosen
with exact components, since no options brought agents from scratch near the threshold. The weight
of joint losses was the best of 0.1, 0.3 and 1 for three of the four losses of an earlier run. No
arm with a network has options tuned for it alone; agents might learn from scratch with other
options. Counted models were tried with 200 and with 1,000 steps from one plan to the next, in
``five_corridors`` and ``FourRooms``. Agents that see images have the same options. Their images
repeat, so that fits can count them: with images that show the agent where it is within its cell,
agents that fit random Fourier features took three times as long and gained no more (eight agents in
``five_corridors``). Agents in games have the same options, except that the scale of rewards is 1.
With targets of three steps instead of ten, agents from scratch learned Breakout more slowly (seeds
from 1000 on).
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlreps.agents import AgentConfig, DQNConfig, gymnax_environment
from rlreps.encoders import MLP, Convolutional
from rlreps.experiments.ours import mazes
from rlreps.experiments.ours.agent_arms import (
    BESIDE,
    CONTROL,
    COSINES,
    COUNTED,
    EXPLICIT,
    FITTED,
    FOUR_ROOMS,
    GAMES,
    LARGE_BATCH,
    LEARNED,
    POSITION,
    RANDOM,
    SCRATCH,
    WAYS,
    WIDER,
    Config,
    arena_of,
    best_return,
    count_arm,
    exact_table,
    learned_table,
    mean_of_budget,
    threshold_of,
    torso_of,
    train_arm,
)
from rlreps.formatting import format_number
from rlreps.stats import (
    Contrast,
    Verdict,
    all_of,
    any_of,
    at_least,
    contrast_rows,
    judge_family,
    samples_to_reach,
)
from rlreps.study import (
    DETECTABLE,
    Axis,
    Claim,
    Curve,
    Experiment,
    Metric,
    Results,
    Run,
    TableRows,
    Tabulated,
    design_of,
    product_cells,
    replace_nested,
)

JOINT = (EXPLICIT, LARGE_BATCH)
DATA_FREE = (RANDOM, POSITION, COSINES)
"""Arms that learned components must beat to show that learning is what helps."""

FEWEST_AGENTS = 20
"""Least number of agents per arm for a verdict."""

GAIN = 0.5
"""Least difference that counts as an effect, in the share of agents that reach the threshold."""

SHARE = 0.25
"""Least difference that counts as an effect, in the mean return, as a share of the gap."""


LAPTOP = AgentConfig(
    encoder=MLP(hidden=(64, 64)),
    dqn=DQNConfig(
        n_step=10,
        target_every=100,
        batch_size=32,
        steps_per_update=8,
        reward_scale=0.1,
        huber_delta=1.0,
    ),
    num_envs=8,
    steps=60_000,
    evaluate_every=2_000,
    evaluation_episodes=32,
    num_seeds=20,
)

PRESETS = {
    "smoke": Config(
        base=replace_nested(
            LAPTOP,
            encoder=MLP(hidden=(8,)),
            num_features=8,
            dqn=DQNConfig(
                batch_size=8, steps_per_update=8, reward_scale=0.1, huber_delta=1.0, warmup=200
            ),
            capacity=1_000,
            num_envs=2,
            steps=400,
            evaluate_every=200,
            evaluation_episodes=2,
            num_seeds=2,
        ),
        arenas=("five_corridors",),
        labels=(SCRATCH, LEARNED),
        pictured=("five_corridors",),
        picture_labels=(SCRATCH, FITTED),
        picture_torso=Convolutional(channels=(2,), hidden=8),
        picture_every=200,
        games=(),
        free_steps=1_000,
        num_features=4,
    ),
    "laptop": Config(base=LAPTOP),
    "paper": Config(base=replace_nested(LAPTOP, steps=120_000, num_seeds=40), game_steps=150_000),
}


def check(config: Config, _: Any) -> None:
    """Raise an ``InputError`` if a game cannot be played, as without the package gymnax."""
    for game in config.games:
        gymnax_environment(GAMES[game].environment)


def cells(run: Run[Config]) -> dict[str, dict[str, str]]:
    """List the arms of every setting; the axis ``arena`` holds settings."""
    found: dict[str, dict[str, str]] = {}
    for setting, labels in run.config.settings.items():
        found |= product_cells("{arena} {arm}", arena=[setting], arm=labels)
    return found


def measure(run: Run[Config], name: str, cell: Mapping[str, str]) -> dict[str, Any]:
    """Train an arm; first fit its agents' components if it has learned components.

    Returns:
        Returns by step, counting free steps, and each agent's metrics of the whole budget.
    """
    config, (setting, label) = run.config, cell.values()
    kind, agents, width = WAYS[label].input, config.agents(setting, label), config.num_features
    arena, tables = arena_of(setting), None
    if kind == "counted":
        curves = count_arm(run, agents, setting)
    else:
        if kind == "learned":
            fit = partial(learned_table, arena, config.free_steps, width, config.discount)
            tables = np.stack([fit(seed) for seed in agents.seeds])
        elif kind == "exact":
            tables = exact_table(arena, width, config.discount)
        torso = torso_of(config.base, arena, kind, width)
        curves = train_arm(run, name, agents, torso, tables)
    steps, returns = curves
    free = config.free_steps if WAYS[label].is_spared else 0
    least = threshold_of(config, setting)
    # A game without a threshold has no share of agents that reach it.
    reached = np.full(len(returns), np.nan)
    if least is not None:
        reached = np.isfinite(samples_to_reach(steps, returns, least)).astype(np.float64)
    values = {
        "return": returns,
        "reached": reached[:, None],
        "mean_return": mean_of_budget(agents, curves, free)[:, None],
    }
    level = "none" if least is None else format_number(least)
    axes = {"threshold": level, "optimal_return": best_return(setting), "free_steps": free}
    axes |= {"seed": [*agents.seeds], "step": (steps.astype(int) + free).tolist()}
    return {"values": {key: each.tolist() for key, each in values.items()}, "axes": axes}


def contrast(
    results: Results[Config],
    setting: str,
    other: str,
    *,
    arm: str,
    value: str = "mean_return",
    effect: float = 0.0,
) -> Contrast:
    """Contrast an arm with another in a setting; shares at the threshold (``reached``) by signs."""
    end = partial(results.end, value, arena=setting)
    found = end(arm=arm).against(end(arm=other), effect)
    return found.of_signs if value == "reached" else found


def beyond_gap(results: Results[Config], arena: str, arm: str, other: str) -> Contrast:
    """Contrast an arm's gain in mean return over another with ``SHARE`` of the gap.

    The gap is computed for each seed, so that the interval includes the error of the mean from
    scratch.
    """
    end = partial(results.end, "mean_return", arena=arena)
    share_of_gap = -SHARE * (end(arm=SCRATCH) - best_return(arena))
    return (end(arm=arm) - end(arm=other)).against(share_of_gap)


def joint_losses(results: Results[Config]) -> Verdict:
    """Judge that some joint loss has the effect over scratch and over the control in two mazes."""
    others = (SCRATCH, CONTROL)
    contrasts = {}
    for maze, arm, other in itertools.product(mazes.mazes_of(results), JOINT, others):
        contrasts[maze, arm, other] = beyond_gap(results, maze, arm, other)
    found = judge_family(contrasts)

    def over_both(maze: str, arm: str) -> Verdict:
        return all_of({other: found[maze, arm, other] for other in others})

    return any_of({arm: mazes.in_mazes(results, partial(over_both, arm=arm)) for arm in JOINT})


def fitted_gains(results: Results[Config], settings: Sequence[str]) -> dict[str, Verdict]:
    """Judge in each setting that features fitted to replay beat both networks without them.

    One measure suffices: the share of agents at the threshold, or the mean return.
    """
    contrasts: dict[tuple[str, str, str], Any] = {}
    for setting, other in itertools.product(settings, (SCRATCH, WIDER)):
        contrasts[setting, other, "agents"] = contrast(
            results, setting, other, arm=FITTED, value="reached", effect=GAIN
        )
        contrasts[setting, other, "return"] = beyond_gap(results, setting, FITTED, other)
    found = judge_family(contrasts)
    return {
        setting: all_of(
            {
                other: any_of({name: found[setting, other, name] for name in ("agents", "return")})
                for other in (SCRATCH, WIDER)
            }
        )
        for setting in settings
    }


def claims(results: Results[Config]) -> Iterator[Claim]:
    """State the goals, the controls that must not explain them, and the null in ``sutton``."""
    tested = "p < 0.05 adjusted for all comparisons, in at least 2 of 3 mazes"
    learned = partial(contrast, arm=LEARNED, value="reached")
    returns = partial(contrast, arm=FITTED)
    yield Claim(
        "more agents reach the threshold with learned components than from scratch or wider",
        f"intervals beyond {100 * GAIN:.0f} points more, and {tested}",
        lambda r: mazes.beats(r, partial(learned, r, effect=GAIN), (SCRATCH, WIDER)),
    )
    yield Claim(
        "more agents reach the threshold with learned components than with any data-free features",
        f"intervals above 0 and {tested}",
        lambda r: mazes.beats(r, partial(learned, r), DATA_FREE),
    )
    yield Claim(
        "one joint loss raises the mean return over no joint loss and the data-free control",
        f"intervals of the gain less {SHARE:.0%} of the gap above 0, and {tested}",
        joint_losses,
    )
    if mazes.CONTROL_ARENA in results.config.arenas:
        yield Claim(
            f"{mazes.CONTROL_ARENA}, where positions are seen: components have no such advantage",
            f"a 95 % interval below {100 * GAIN:.0f} points",
            lambda r: learned(r, mazes.CONTROL_ARENA, SCRATCH, effect=GAIN).below,
        )
    beyond = (
        f"intervals beyond {100 * GAIN:.0f} points more agents, or of the gain less {SHARE:.0%} of "
        "the gap above 0, and p < 0.05"
    )
    codes = mazes.mazes_of(results)
    seen = (each for each in results.config.settings if each not in GAMES)
    settings = [each for each in seen if each != mazes.CONTROL_ARENA]
    aside = [each for each in settings if arena_of(each) == results.config.aside]
    yield Claim(
        "features fitted to replay beat learning from scratch and the wider network",
        f"{beyond} adjusted for all comparisons, in at least 2 of 3 mazes with codes",
        lambda r: at_least(2, fitted_gains(r, codes), of=len(mazes.MAZES)),
    )
    yield Claim(
        "features fitted to replay do so with codes and with images",
        f"{beyond} adjusted for all comparisons, in at least 4 of 6 settings",
        lambda r: at_least(4, fitted_gains(r, settings), of=2 * len(mazes.MAZES)),
    )
    yield Claim(
        f"features fitted to replay do so in {results.config.aside}, which was kept aside",
        f"{beyond} adjusted for the comparisons there",
        lambda r: all_of(fitted_gains(r, aside)),
    )
    if FOUR_ROOMS in results.config.games:
        yield Claim(
            f"features fitted to replay do so in {FOUR_ROOMS} of gymnax, with images",
            f"{beyond} adjusted for the comparisons there",
            lambda r: all_of(fitted_gains(r, [FOUR_ROOMS])),
        )
    minatar = [each for each in GAMES if each != FOUR_ROOMS]
    if set(minatar) & set(results.config.games):
        yield Claim(
            f"features fitted to replay raise the mean return in {' and '.join(minatar)}",
            "intervals above 0 over both networks, and p < 0.05 adjusted for all comparisons",
            lambda r: all_of(mazes.beaten(minatar, partial(returns, r), (SCRATCH, WIDER))),
        )
    countable = [each for each, labels in results.config.settings.items() if COUNTED in labels]
    if countable:
        yield Claim(
            "counted models have a higher mean return than features fitted to replay",
            "intervals above 0 and p < 0.05 adjusted for all comparisons, in all their settings",
            lambda r: all_of(
                judge_family({each: contrast(r, each, FITTED, arm=COUNTED) for each in countable})
            ),
        )


def compared(results: Results[Config], value: str) -> TableRows:
    """Compare every arm with the arm from scratch, and some arms with others too.

    Joint losses are compared with their control, and features fitted to replay with the wider
    network, random features and the counted model.
    """
    rows = []
    for arena in results.config.settings:
        if value == "reached" and threshold_of(results.config, arena) is None:
            continue
        found = list(results.ends.where(arena=arena).labelled("arm"))
        pairs = [(arm, SCRATCH) for arm in found if arm != SCRATCH]
        others = [(arm, CONTROL) for arm in JOINT]
        others += [(FITTED, other) for other in (WIDER, BESIDE, COUNTED)]
        pairs += [pair for pair in others if {*pair} <= {*found}]
        rows += contrast_rows(
            [
                (
                    {"arena": arena, "arm": arm, "against": other},
                    contrast(results, arena, other, arm=arm, value=value),
                )
                for arm, other in pairs
            ]
        )
    return rows


def arms(results: Results[Config]) -> TableRows:
    """Tabulate every arm in every arena, with means over agents."""
    keys, rows = ("arena", "threshold", "optimal_return", "arm", "free_steps"), []
    for which, ends in results.ends.groups(*keys).items():
        means = {"reached": "reached", "mean_return": "mean_return", "final_return": "return"}
        found = {name: float(ends[column].mean()) for name, column in means.items()}
        rows.append({**dict(zip(keys, which, strict=True)), "agents": len(ends), **found})
    return rows


EXPERIMENT = Experiment(
    name="agents",
    title="What helps agents that see codes or images",
    presets=PRESETS,
    check=check,
    cells=cells,
    measure=measure,
    value=Metric(value="reached", label="share of agents that reach the threshold"),
    fewest=FEWEST_AGENTS,
    claims=claims,
    sections={
        "Arms": [
            design_of(__doc__),
            Tabulated(
                name="arms",
                rows=arms,
                caption="Share of agents that reach the threshold, and mean return over the "
                f"budget. Free steps count with a return of {format_number(-float(mazes.CAP))}, "
                "the return of an agent that never arrives.",
            ),
            Tabulated(
                name="gains",
                rows=partial(compared, value="reached"),
                caption="Differences of the share of agents that reach the threshold. p-values are "
                f"by exact sign tests, adjusted for the arena (Holm). {DETECTABLE}",
            ),
            Tabulated(
                name="effects",
                rows=partial(compared, value="mean_return"),
                caption="Differences of the mean return over the budget. p-values are by sign "
                f"flips, adjusted for the arena (Holm). {DETECTABLE}",
            ),
            Curve(
                name="returns",
                caption="Mean return of evaluations. Steps without rewards count, so the curves of "
                "learned and exact components begin after them. Vertical scales differ.",
                x=Axis("step", "environment steps, free ones included"),
                y=Metric(value="return", label="return"),
                line="arm",
                panel="{arena}, threshold {threshold}",
                middle=True,
                axes={"share_y": False},
            ),
        ],
    },
)
