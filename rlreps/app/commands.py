"""The table of commands: every command is one line of it, or an experiment."""

from collections.abc import Mapping

COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": (
        "study.quickstart:quickstart",
        "Run the whole pipeline: ground truth to report.",
    ),
    "successor generate": (
        "app.generation:generate",
        "Compute a successor measure, or continue it.",
    ),
    "successor info": ("app.stores:info", "Describe a store and its distance from the truth."),
    "successor verify": ("app.stores:verify", "Read a store back and check every block."),
    "successor compare": (
        "app.stores:compare",
        "Compare the leading components of two stores.",
    ),
    "worlds list": ("app.worlds:list_worlds", "List the worlds that can be built."),
    "worlds build": ("app.worlds:build_world", "Build a world into the cache, or a file."),
    "worlds info": ("app.worlds:describe_world", "Describe a world: states, values, spectrum."),
    "worlds truth": (
        "app.worlds:save_truth",
        "Store the successor measure of a policy in a world.",
    ),
    "worlds sample": (
        "app.worlds:sample_world",
        "Store sampled successor features of a game too large to enumerate.",
    ),
    "svd": ("app.stores:svd", "Compute the principal subspace of a store."),
    "train": ("app.jobs.train:Train", "Train an encoder on a store."),
    "train-live": (
        "app.jobs.train_live:TrainLive",
        "Train an encoder on fresh rollouts, without a matrix.",
    ),
    "sweep": ("study.sweep:sweep", "Train at every point of a grid and gather one table."),
    "fit": ("app.jobs.fit:FitData", "Fit successor features to transitions of your own."),
    "audit": (
        "app.jobs.audit:AuditFeatures",
        "Measure features of any network against a ground truth.",
    ),
    "benchmark": (
        "app.experiments:benchmark",
        "Compare objectives with each other and the truth.",
    ),
    "evaluate": (
        "app.trained_runs:evaluate_run",
        "Measure a trained encoder against a ground truth.",
    ),
    "export": (
        "app.export:export_run",
        "Write a trained encoder for JAX and PyTorch without rlreps.",
    ),
    "compare": ("study.compare:print_comparison", "Compare finished runs with the first of them."),
    "agent train": (
        "app.jobs.agents:TrainAgents",
        "Train agents, with an auxiliary task or without.",
    ),
    "agent evaluate": (
        "app.jobs.agents:evaluate_agents",
        "Play greedy episodes and measure the torsos.",
    ),
    "agent render": (
        "app.agent_pictures:render_agents",
        "Draw an episode, policy, components and curves.",
    ),
    "plot env": ("app.plots:draw_environment", "Draw an arena."),
    "plot components": (
        "app.plots:draw_components",
        "Draw principal components, true and learned.",
    ),
    "plot coverage": ("app.plots:draw_coverage", "Draw where the data of a fit were."),
    "plot spectrum": ("app.plots:draw_spectrum", "Draw the singular values of a store."),
    "plot curves": ("app.plots:draw_curves", "Draw the learning curves of training runs."),
    "explore": (
        "explore.build:explore",
        "Write an interactive page of a successor measure.",
    ),
}
"""Command → (module of rlreps:job or function, summary). Modules load when they are called.

A function that returns a job is a command that runs it. A module's ``CHOICES`` say how the user
chooses the class of a field, ``NAMES`` how options are named, ``NEEDS`` which option others need.
"""


def every_command() -> Mapping[str, tuple[str, str]]:
    """List every command, experiments included."""
    from rlreps.experiments import EXPERIMENTS

    listed = {
        f"experiment {name}": (
            f"app.experiments:{name}",
            f"{entry.description} ({entry.paper})",
        )
        for name, entry in EXPERIMENTS.items()
        if name not in COMMANDS
    }
    return {**COMMANDS, **listed}
