"""The command that fits successor features to a user's transitions."""

from pathlib import Path
from typing import Any

from rlreps.app.command_training import NAMES as NAMES
from rlreps.app.jobs.fit import Collection, print_fit, run_fit
from rlreps.app.options import Choice
from rlreps.encoders import Encoder
from rlreps.envs.observations import OBSERVATIONS, Observation
from rlreps.successor.fitting.methods import FIT_ENCODERS, FIT_METHODS, FitConfig, FitMethod

CHOICES: dict[Any, Choice] = {
    Observation | None: Choice("observation", OBSERVATIONS),
    Encoder | None: Choice("encoder", FIT_ENCODERS),
    FitMethod | None: Choice("method", FIT_METHODS),
}


def fit(
    data: str,
    out: Path,
    config: FitConfig,
    collection: Collection,
) -> None:
    """Fit successor features to transitions; the same command resumes an interrupted fit.

    Args:
        data: An .npz file with arrays as Minari, D4RL or OGBench name them (observations, actions,
            terminals, timeouts, ...). With --collect, an environment in which uniformly random
            actions are taken: the id of a Gymnasium environment, dm_env:MODULE:FUNCTION for a
            function that makes one, or puddle-world[:ARENA].
        out: Folder of the run.
        config: The fit.
        collection: How the transitions are read or collected.
    """
    print_fit(run_fit(config, data, out, collection), out)
