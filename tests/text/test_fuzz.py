"""A sample of the fuzzer's inputs (`nightly/fuzz.py`), and that the fuzzer itself sees what it looks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUZZ = ROOT / "nightly" / "fuzz.py"
COUNT = 40

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits are set as Linux counts memory")


def fuzzed(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, str(FUZZ), *arguments], capture_output=True, text=True, check=False, env=environment)


def test_a_sample_of_inputs_is_taken_as_it_should_be(tmp_path: Path) -> None:
    done = fuzzed("--seed", "0", "--count", str(COUNT), "--jobs", "1", "--log", str(tmp_path / "log"))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert f"0 of {COUNT} were not taken as they should be" in done.stdout


BROKEN = """
import json, sys
sys.path[:0] = {paths!r}
import fuzz
from fuzz_inputs import CATEGORIES
from fuzz_mutate import Case
from placeproof.cli import main as cli
listed = cli.program.commands["list"]
CATEGORIES.clear()
CATEGORIES["list"] = lambda rng: Case("list", ["list", "modes"], {{"a": b"x\\ny\\n"}})
fuzz.SECONDS, fuzz.BYTES = 1, 2**28
found = []
for body in {bodies!r}:
    names = {{}}
    exec("def broken(**_):\\n" + body, names)
    listed.callback = names["broken"]
    found += fuzz.fuzz(0, range(1), minimise=True)
print(json.dumps(found))
"""

WRONG = {
    "    raise KeyError(1)": "a bug: KeyError: 1 (broken, line 2)",
    "    while True: pass": "over 1 s of computing",
    "    b'x' * 2**29": "over 0 GB",
    "    return 2": "exit code 2 without a word",
    "    return 0": "exit code 0 without output",
    "    return 9": "exit code 9",
    "    print('nan GB')": "nonsense: nan in the output",
    "    import sys; sys.stderr.write('Traceback (most recent call last)'); return 1": "a traceback",
    "    import os; os.kill(os.getpid(), 11)": "died by SIGSEGV",
    "    print('fine')": None,
}


def test_the_fuzzer_sees_what_it_looks_for() -> None:
    script = BROKEN.format(paths=[str(ROOT), str(ROOT / "nightly")], bodies=list(WRONG))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [row.get("wrong") for row in json.loads(done.stdout)] == list(WRONG.values())


SILENT = """
import json, sys
sys.path[:0] = {paths!r}
import fuzz
from fuzz_mutate import Case
from placeproof.cli import main as cli
listed = cli.program.commands["list"]
names = {{}}
exec({body!r}, names)
listed.callback = names["reader"]
def wrong(want, new, old="good"):
    base = Case("list", ["list", old])
    case = Case("list", ["list", new], want=want, base=base)
    return fuzz.judged(case, fuzz.run(case))
print(json.dumps([wrong(*one) for one in {asked!r}]))
"""
READER = """
def reader(kind, **_):
    print({"bad": "refused", "other": "otherwise in 3 ms", "named": "qq is of no matter"}.get(kind, "as usual in 4 ms"))
    if kind == "bad":
        import sys
        print("no", file=sys.stderr)
    return 2 if kind == "bad" else 0
"""
#: How a change of a good input should end, and what it is; and what is wrong if it ends so.
CHANGES = [
    (("refused", "bad"), None),
    (("refused", "ignored"), "taken in silence"),
    (("refused", "ignored", "bad"), None),  # what it is a change of was not taken either
    (("named qq", "named"), None),
    (("named qq", "ignored"), "taken in silence"),
    (("named qq", "bad"), None),
    (("told qq", "ignored"), None),
    (("told qq", "other"), "taken in silence"),
    (("same", "ignored"), None),
    (("same", "other"), "another answer, and nothing was changed"),
    (("not 0", "bad"), None),
    (("not 0", "other"), "taken, and it is wrong"),
]


def test_the_fuzzer_sees_what_is_taken_in_silence() -> None:
    paths = [str(ROOT), str(ROOT / "nightly")]
    script = SILENT.format(paths=paths, body=READER, asked=[asked for asked, _ in CHANGES])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [wrong for _, wrong in CHANGES]


def test_rules_tell_nonsense() -> None:
    script = f"""
import sys
sys.path[:0] = {[str(ROOT), str(ROOT / "nightly")]!r}
from fuzz import Case, Ended, judged
def wrong(argv, out="told", category="set"):
    return judged(Case(category, argv), Ended(0, out, "", 0))
good = ["N=8", "P=1e9", "P=0.5", "b_omega=0", "eta=1/2"]
bad = ["N=0.5", "N=-8", "m=0", "P=-1", "P=0", "b_omega=-1", "P=nan"]
assert [s for s in good if wrong(["derive", "ddp", "--set", s])] == []
assert [s for s in bad if not wrong(["derive", "ddp", "--set", s])] == []
assert wrong(["derive", "--json"], "NaN") and wrong(["derive", "--json"], "{{") and not wrong(["derive", "--json"], "{{}}")
assert wrong(["--shapes", "transformer(layers=2.7)"], category="shapes")
assert not wrong(["--shapes", "transformer(layers=20, hidden=3)"], category="shapes")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
