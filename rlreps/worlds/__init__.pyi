from .arenas import estimate_arena as estimate_arena
from .named import WORLDS as WORLDS
from .named import build as build
from .named import load as load
from .planning import epsilon_greedy as epsilon_greedy
from .sampled import sample_to_store as sample_to_store
from .settings import StateSampling as StateSampling
from .world import World as World
