from .environment import TableEnvironment as TableEnvironment
from .named import WORLDS as WORLDS
from .named import build as build
from .named import load as load
from .planning import effective_horizon as effective_horizon
from .world import World as World
