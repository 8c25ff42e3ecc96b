"""The catalogue: strategies as data files, and the language of strategy expressions."""

from placeproof.strategies.catalogue import names, template
from placeproof.strategies.expression import parse_strategies, parse_strategy
from placeproof.strategies.files import read_data, read_file
from placeproof.strategies.template import Option, Template

__all__ = ["Option", "Template", "names", "parse_strategies", "parse_strategy", "read_data", "read_file", "template"]
