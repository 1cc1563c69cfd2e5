from .named import WORLDS as WORLDS
from .named import build as build
from .named import load as load
from .planning import epsilon_greedy as epsilon_greedy
from .world import World as World
