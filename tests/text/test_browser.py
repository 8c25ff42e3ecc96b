"""Pages in a real browser: Chromium as the system has it. Skipped where there is none, or no Playwright; neither is downloaded."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import placeproof
from placeproof.cli.main import run
from placeproof.report.units import giga

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if BROWSER is None:
    pytest.skip("no Chromium is installed: `apt-get install chromium`", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: `pip install placeproof[browser]`")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: `pip install placeproof[browser]`")

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
DENSE = ("derive", "fsdp(8) * tp(8) * sp * pp(4)", "--model", "llama3-8b", "--cluster", "dgx-h100")
COMMANDS = {
    "cluster": DENSE,
    "strategy": ("derive", "zero3(8)", "--set", "P=7e9", "--set", "A=1e9", "--set", "U=2e8"),
    "refuted": ("prove", "local_sgd"),
    "compare": ("compare", "fsdp(64)", "fsdp(8) * tp(8) * sp", "--model", "llama3-8b", "--cluster", "dgx-h100"),
    "check": ("check", "kernel.sum_is_additive"),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, command in COMMANDS.items():
        with contextlib.redirect_stdout(io.StringIO()):
            assert run([*command, "--html", str(folder / f"{name}.html")]) in (0, 1)
    return {name: folder / f"{name}.html" for name in COMMANDS}


def opened(browser: Any, path: Path, **how: Any) -> tuple[Any, list[str]]:
    """A page, offline, and what the console says of errors and of requests."""
    context = browser.new_context(offline=True, **how)
    page, said = context.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    return page, said


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_is_accessible_and_silent(browser: Any, pages: dict[str, Path], name: str, scheme: str) -> None:
    """No violation that axe knows of, folded parts unfolded; no word in the console; nothing is asked for."""
    page, said = opened(browser, pages[name], color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    assert said == []


@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_fits_its_window(browser: Any, pages: dict[str, Path], name: str, width: int) -> None:
    """Nothing but tables and programs is wider than the window, and each of those is scrolled by itself."""
    page, _ = opened(browser, pages[name], viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_sliders_say_what_the_command_line_says(browser: Any, pages: dict[str, Path]) -> None:
    """Moved with the keyboard: figures of memory and traffic are those of a strategy that is derived there; times are struck through."""
    page, said = opened(browser, pages["cluster"])
    before = page.locator("main").inner_text()
    for symbol, key, times in (("N_dp", "ArrowRight", 1), ("N_tp", "ArrowLeft", 1), ("b", "ArrowRight", 2), ("m", "ArrowRight", 1)):
        for _ in range(times):
            page.locator(f"#move-{symbol}").press(key)
    data = placeproof.model("fsdp(16) * tp(4) * sp * pp(4)", "llama3-8b", b=4, m=8).data
    for i, stage in enumerate(data["stages"]):
        for path, value in (("memory/peak", stage["memory"]["peak"]), ("traffic/tp", stage["traffic"]["tp"])):
            figure = page.locator(f'[data-at="/stages/{i}/{path}/value"]')
            assert figure.inner_text() == giga(value["value"])
            assert "old" not in (figure.get_attribute("class") or "")
    assert "old" in str(page.locator('[data-at="/time/seconds/step"]').get_attribute("class"))
    assert "N_dp = 16" in page.locator("#moved").inner_text()
    assert page.locator("#move-b").get_attribute("aria-valuetext") == "4"
    page.locator("#back").click()
    assert page.locator("main").inner_text() == before
    assert said == []


def test_what_no_longer_fits_is_said_in_words(browser: Any, pages: dict[str, Path]) -> None:
    page, _ = opened(browser, pages["cluster"])
    assert page.locator(".over").count() == 0
    page.locator("#move-b").press("End")
    page.locator("#move-capacity").press("Home")
    assert page.locator(".over").count() > 0
    assert page.locator('[data-at="/time/memory"]').inner_text() == "16"


def test_a_page_is_whole_without_scripts(browser: Any, pages: dict[str, Path]) -> None:
    page, _ = opened(browser, pages["cluster"], java_script_enabled=False)
    assert page.locator(".sliders").is_hidden()
    assert page.locator("tbody tr").count() > 20


def test_axe_finds_what_is_wrong(browser: Any, pages: dict[str, Path]) -> None:
    """Grey on white, and a slider without a label."""
    page, _ = opened(browser, pages["cluster"])
    page.evaluate("document.querySelector('header').style.color = '#dddddd'; document.querySelector('.sliders label').remove()")
    assert {one["id"] for one in axe.Axe().run(page).response["violations"]} == {"color-contrast", "label"}
