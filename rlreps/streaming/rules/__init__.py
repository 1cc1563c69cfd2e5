"""Streaming rules, each one frozen dataclass: its fields are its options."""

from rlreps.config import registry
from rlreps.streaming.rules.base import Rule
from rlreps.streaming.rules.eigengame import Eigengame, MuEigengame
from rlreps.streaming.rules.factor import ExplicitKrasulina, ImplicitKrasulina
from rlreps.streaming.rules.gradient import Krasulina, Oja, Sanger
from rlreps.streaming.rules.incremental_pca import IncrementalPCA

RULES: dict[str, type[Rule]] = registry(
    Eigengame,
    ExplicitKrasulina,
    ImplicitKrasulina,
    IncrementalPCA,
    Krasulina,
    MuEigengame,
    Oja,
    Sanger,
)
"""Name → rule."""
