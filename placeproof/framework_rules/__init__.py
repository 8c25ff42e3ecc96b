"""The rules that training frameworks enforce about configurations, each judged from the program that devices run."""

from placeproof.framework_rules.table import MEANINGS, SYSTEMS, Broken, Rule, RuleKind, broken, of_system, rules

__all__ = ["MEANINGS", "SYSTEMS", "Broken", "Rule", "RuleKind", "broken", "of_system", "rules"]
