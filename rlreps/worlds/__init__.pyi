from .named import WORLDS as WORLDS
from .named import build as build
from .named import load as load
from .planning import epsilon_greedy as epsilon_greedy
from .sampled import SampledTruth as SampledTruth
from .sampled import StateSampling as StateSampling
from .sampled import sample_truth as sample_truth
from .world import World as World
