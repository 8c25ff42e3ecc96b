"""Findings in the formats that services read: JUnit's XML, SARIF 2.1.0, and annotations of GitHub's workflows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from placeproof.report.findings import RULES, Case, shown_path

#: What XML cannot hold.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LEVEL = {"failed": "error", "undecided": "error", "warned": "warning"}


def junit(cases: Sequence[Case], command: str) -> str:
    """JUnit's XML: a suite for each thing that was asked about. A failure is what was found wrong; an error, what could not be decided or
    read; a warning is output of a test that passed."""
    root = ET.Element("testsuites", {"name": f"placeproof {command}", **_counts(cases)})
    for of, own in groupby(sorted(cases, key=lambda case: case.of), key=lambda case: case.of):
        members = list(own)
        skipped = str(sum(case.standing == "open" for case in members))
        suite = ET.SubElement(root, "testsuite", {"name": _xml(of), **_counts(members), "skipped": skipped})
        for case in members:
            place = {"file": _xml(shown_path(case.path)), "line": str(case.line)} if case.path else {}
            name = {"name": _xml(case.name), "classname": _xml(of)}
            test = ET.SubElement(suite, "testcase", {**name, "time": f"{case.seconds:.6f}", **place})
            if case.standing == "open":
                ET.SubElement(test, "skipped", {"message": _xml(case.message)})
            elif case.standing == "warned":
                ET.SubElement(test, "system-out").text = _xml(case.text)
            elif case.standing != "passed":
                told = ET.SubElement(test, _kind(case), {"message": _xml(case.message), "type": case.rule})
                told.text = _xml(case.text)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _kind(case: Case) -> str:
    return "error" if case.standing == "undecided" or case.rule == "input" else "failure"


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    kinds = Counter(_kind(case) for case in cases if case.standing in ("failed", "undecided"))
    seconds = sum(case.seconds for case in cases)
    return {"tests": str(len(cases)), "failures": str(kinds["failure"]), "errors": str(kinds["error"]), "time": f"{seconds:.6f}"}


def _xml(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def sarif(cases: Sequence[Case], version: str, code: int) -> str:
    """A log of SARIF 2.1.0 with everything that does not stand. Paths are relative to the root of the sources, where they are in it."""
    found = [case for case in cases if case.standing in _LEVEL]
    rules = [rule for rule in RULES if any(case.rule == rule for case in found)]
    driver = {
        "name": "placeproof",
        "version": version,
        "rules": [{"id": rule, "shortDescription": {"text": RULES[rule]}} for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": code != 2, "exitCode": code}],
        "results": [_result(case, rules.index(case.rule)) for case in found],
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1) + "\n"


def _result(case: Case, rule: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ruleId": case.rule,
        "ruleIndex": rule,
        "level": _LEVEL[case.standing],
        "message": {"text": "\n\n".join(dict.fromkeys(filter(None, (case.message, case.text))))},
        "partialFingerprints": {"placeproof/1": f"{case.rule}:{case.of}:{case.name}"},
    }
    if case.path:
        artifact = {"uri": _uri(shown_path(case.path))}
        region = {"startLine": case.line, "startColumn": case.column}
        found["locations"] = [{"physicalLocation": {"artifactLocation": artifact, "region": region}}]
    return found


def _uri(path: str) -> str:
    whole = PurePosixPath(path)
    return whole.as_uri() if whole.is_absolute() else quote(path)


def github(cases: Iterable[Case]) -> str:
    """Commands that a workflow of GitHub reads, a line for everything that does not stand."""
    lines = []
    for case in cases:
        if case.standing in _LEVEL:
            place = {"file": shown_path(case.path), "line": str(case.line), "col": str(case.column)} if case.path else {}
            properties = ",".join(f"{key}={_property(value)}" for key, value in {**place, "title": f"placeproof: {case.rule}"}.items())
            lines.append(f"::{_LEVEL[case.standing]} {properties}::{_value(case.message)}\n")
    return "".join(lines)


def _value(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _value(text).replace(":", "%3A").replace(",", "%2C")
