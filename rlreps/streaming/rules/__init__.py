"""Streaming rules, each one frozen dataclass: its fields are its options."""

from rlreps.config import registry
from rlreps.streaming.rules.base import Rule
from rlreps.streaming.rules.eigengame import Eigengame, MuEigengame
from rlreps.streaming.rules.explicit_krasulina import ExplicitKrasulina
from rlreps.streaming.rules.implicit_krasulina import ImplicitKrasulina
from rlreps.streaming.rules.incremental_pca import IncrementalPCA
from rlreps.streaming.rules.krasulina import Krasulina
from rlreps.streaming.rules.oja import Oja
from rlreps.streaming.rules.sanger import Sanger

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
