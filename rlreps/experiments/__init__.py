"""Published experiments, and our own, by name. This module does not import JAX."""

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rlreps.experiments.harness import Experiment

PAPERS = {
    "le_lan_2023": "Le Lan et al. 2023",
    "pfau_2019": "Pfau et al. 2019",
    "amid_warmuth_2020": "Amid and Warmuth 2020",
    "ours": "ours",
}
"""Folder → paper."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """What the command line knows of an experiment before it loads it.

    Attributes:
        module: Below this package; it holds ``EXPERIMENT``.
        description: One line.
        devices: ``shared``: many small runs are shared out to all cores or accelerators;
            ``chosen``: the user chooses how many devices to train on; None: one device.
        takes_data: Whether there is an option ``data``.
        one_lapack_thread: Whether its programs factorise small matrices in every update.
        largest: What the preset ``paper`` is.
    """

    module: str
    description: str
    devices: Literal["shared", "chosen"] | None = None
    takes_data: bool = False
    one_lapack_thread: bool = False
    largest: str = "is the published protocol"

    @property
    def paper(self) -> str:
        """Return the paper that the experiment is from."""
        return PAPERS[self.module.split(".")[0]]

    def load(self) -> "Experiment[Any]":
        """Import the experiment."""
        found: Experiment[Any] = importlib.import_module(f"{__name__}.{self.module}").EXPERIMENT
        return found


EXPERIMENTS: dict[str, Entry] = {
    "synthetic": Entry(
        module="le_lan_2023.synthetic",
        description="Known spectra: the methods on matrices whose singular values are set.",
        devices="shared",
    ),
}
"""Name → experiment."""
