"""The page in Chromium: what it shows and what can be done with it, inside a real TensorBoard."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pytest
from PIL import Image as Pillow

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.columns.profile import find_profiles
from ms_summary_bridge.states.compare.diff import LossDiff, describe_loss, show_value
from tests.mindspore_run import summary_bytes
from tests.pages import count_colours, main_colour, photograph, photograph_once
from tests.tensorboard_plugin.page_logs import Dashboard, running_dashboard
from tests.tensorboard_plugin.test_dashboard import EVIL, Collected, losses

if TYPE_CHECKING:
    from playwright.sync_api import Frame

pytestmark = pytest.mark.tensorboard
RAN: set[str] = set()  # tests of this file, in this process
AXE = Path(__file__).with_name("vendor") / "axe.js"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with running_dashboard(tmp_path_factory.mktemp("page")) as dashboard:
        yield dashboard


@pytest.fixture
def dashboard(shared: Dashboard, request: pytest.FixtureRequest) -> Iterator[Dashboard]:
    """The one that all tests share; each begins with an empty memory of the browser and ends without an error."""
    shared.errors.clear()
    RAN.add(request.function.__name__)
    shared.page.goto(shared.client.url)
    shared.page.evaluate("localStorage.clear()")
    yield shared
    shared.assert_faultless()


def state(**said: object) -> str:
    """Returns what stands in the address: texts as they are, the rest as JSON."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in said.items()}
    return "".join(f"&p.mindspore.{name}={quote(text, safe='')}" for name, text in texts.items())


def names(frame: Frame) -> list[str]:
    """Returns the names of the runs that the table shows, from above."""
    return frame.locator("table.runs tbody button.name").all_text_contents()


def choose(frame: Frame, run: str) -> str:
    """Opens a run as a person does, and returns the text that is then shown of it."""
    if frame.locator(".run h2").is_visible():
        frame.get_by_role("button", name="← Runs").click()
    frame.get_by_role("button", name=run, exact=True).click()
    frame.wait_for_function("run => document.querySelector('.run:not(.loading) h2')?.textContent === run", arg=run)
    frame.wait_for_function("run => document.activeElement.textContent === run", arg=run)
    return frame.locator(".run").inner_text()


def wait_names(frame: Frame, *expected: str) -> None:
    """Waits until the table shows these runs and no other, from above."""
    frame.wait_for_function(
        "expected => JSON.stringify([...document.querySelectorAll('table.runs tbody button.name')]"
        ".map(one => one.textContent)) === expected",
        arg=json.dumps(expected, separators=(",", ":"), ensure_ascii=False),
        timeout=10_000,
    )


def wait_count(frame: Frame, selector: str, count: int) -> None:
    """Waits until so many elements are there: a run's curve is drawn when its points have come, after the rest."""
    frame.wait_for_function(
        "([selector, count]) => document.querySelectorAll(selector).length === count",
        arg=[selector, count],
        timeout=10_000,
    )


# ---------------------------------------------------------------- what it shows


def test_the_page_shows_all_of_it_in_light_and_dark(dashboard: Dashboard) -> None:
    page = dashboard.page
    frame = dashboard.open(height=2000)
    table = frame.locator("table.runs").inner_text()
    for text in ("lenet/slow", "lenet/fast", "llm/run", "ended", "0.11 at 20", "64 samples/s", "learning_rate"):
        assert text in table
    broken = frame.locator("tr[data-key='llm/run'] .spark")
    assert (broken.locator("path").count(), broken.locator("line.nan").count()) == (1, 1), "a NaN loss is seen at once"
    marked = frame.locator("td.differs[data-config=learning_rate]").all_text_contents()
    assert "0.1" in marked, "the other one is marked"
    assert "0.01" not in marked, "the usual one is not"

    run = choose(frame, "llm/run")
    for text in ("Alerts (1)", "critical nonfinite", "step 6", "warm-up is over", "tag: model", "7B"):
        assert text in run
    photograph(page, "dashboard-journal-light", count_colours, 100)
    run = choose(frame, "lenet/fast")
    for text in (
        "learning_rate",
        "0.1",
        "MSELoss",
        "damaged",
        "Normalize",
        "from step 12 on",
    ):
        assert text in run
    run = choose(frame, "lenet/seeded")
    for text in ("(no name)", "200. op199", "and 50 more", "x" * 200 + "… (300 characters)"):
        assert text in run
    assert "op200" not in run
    assert frame.locator(".pipeline .stage").count() == 1
    choose(frame, "lenet/fast")
    assert frame.locator(".pipeline .stage").count() == 8
    assert frame.locator(".pipeline .branches").count() == 1
    assert frame.locator(".chart svg g.nan").count() == 9
    assert min(main_colour(photograph(page, "dashboard-light", count_colours, 100))) > 200

    frame.get_by_role("button", name="← Runs").click()
    slow = next((dashboard.logdir / "lenet" / "slow").glob("*_MS"))
    before = slow.read_bytes()
    with slow.open("ab") as file:
        file.write(summary_bytes(losses({4321: 0.05}))[len(summary_bytes([])) :])
    frame.locator("table.runs", has_text="0.05 at 4321").wait_for()  # without a reload
    slow.write_bytes(before)  # for the tests that follow
    frame.locator("table.runs:not(:has-text('4321'))").wait_for()

    frame = dashboard.open(dark=True, height=2000)
    assert frame.evaluate("document.documentElement.dataset.theme") == "dark"
    choose(frame, "lenet/fast")
    assert max(main_colour(photograph(page, "dashboard-dark", count_colours, 100))) < 100
    frame.locator("header button").last.click()  # from auto to light
    assert frame.evaluate("document.documentElement.dataset.theme") == "light"
    frame.get_by_role("button", name="← Runs").click()
    frame.locator("th button", has_text="Best loss").click()
    best = [row.split(" at ")[0] for row in frame.locator("table.runs tbody tr[data-key]").all_inner_texts()]
    assert [name for name in names(frame) if name.startswith("lenet")][-1] == "lenet/fast", best


def test_no_text_of_a_log_becomes_markup(dashboard: Dashboard) -> None:
    frame = dashboard.open(height=2000)
    shown = choose(frame, EVIL)
    assert shown.count(EVIL) >= 12, shown
    frame.get_by_role("button", name="← Runs").click()
    frame.get_by_label(f"Compare {EVIL}", exact=True).check()
    frame.get_by_label("Group by").select_option("set:optimizer")
    frame.locator("tr.group", has_text=f"optimizer = {EVIL}").wait_for()
    frame.get_by_text("Columns", exact=True).click()
    frame.get_by_label("Find a column").fill("img")
    frame.locator(".picker-items", has_text=EVIL).wait_for()
    frame.get_by_label("Search runs").fill(EVIL)
    frame.locator("h3", has_text="1 of 7 runs").wait_for()
    assert frame.locator("img").count() == 0
    frame = dashboard.open(state(check=["lenet/slow", EVIL], changes="1"))
    assert EVIL in frame.locator(".changes tr[data-section=settings]", has_text=EVIL).first.inner_text()
    assert frame.locator("img").count() == 0


def test_a_run_has_links_a_time_line_and_its_profiles(dashboard: Dashboard) -> None:
    frame = dashboard.open(state(run="lenet/fast"))
    links = dict(frame.locator("nav.links a").evaluate_all("all => all.map(one => [one.textContent, one.href])"))
    assert {"Scalars", "Histograms", "HParams", "Graphs"} <= links.keys()
    wait_count(frame, ".happening.end", 2)  # on the curve and in the key
    frame.locator(".kinds", has_text="NaN or infinite").wait_for()
    folded = frame.locator("details.folded h3").all_text_contents()
    assert {"Alerts", "Profiles", "Ranks"} <= {*folded}, "what is empty is one line"
    frame.locator("details.folded", has_text="Profiles").locator("summary").click()
    frame.get_by_text("_ascend_ms directory").wait_for()

    with dashboard.page.expect_popup() as opened:
        frame.locator("nav.links a", has_text="Scalars").click()
    assert opened.value.url == links["Scalars"]
    opened.value.close()
    dashboard.page.goto("about:blank")
    dashboard.page.goto(links["Histograms"])
    dashboard.page.get_by_text("layer/activation").first.wait_for()
    loaders = dashboard.page.locator("vz-histogram-timeseries, tf-histogram-loader")
    loaders.nth(1).wait_for()
    drawn = loaders.count()
    assert drawn in (2, 4), "two tags of one run: the others are filtered out"

    frame = dashboard.open(state(run="gpt/four_ranks"))
    wait_count(frame, ".happening.alarm", 2)
    frame.locator(".curve").get_by_label("Metric").select_option("grad_norm")
    frame.wait_for_function("document.querySelector('.curve output').textContent === ''")
    frame.locator(".curve .plot").focus()
    dashboard.page.keyboard.press("ArrowRight")
    frame.wait_for_function("document.querySelector('.curve output').textContent.endsWith(': 1')")
    frame.locator(".metrics button.name", has_text="loss").click()
    frame.wait_for_function("document.querySelector('.curve select').value === 'loss'")
    title = frame.locator(".happening.alarm").first.get_attribute("title")
    assert title == "alarm, step 41: The loss is 2.2 after 0.2."
    frame.locator(".profiles summary", has_text="2 steps, rank 3").wait_for()
    with dashboard.page.expect_download() as download:
        frame.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "trace_view.json"
    assert json.loads(Path(download.value.path()).read_text()) == [{"name": "MatMul"}]


def test_a_profile_shows_where_the_time_of_a_step_goes(dashboard: Dashboard) -> None:
    for run, title, steps, core, places in (
        ("gpt/four_ranks", "2 steps, rank 3", 8, "AI_CORE", (0, 1)),
        ("lenet/seeded", "without times of steps", 0, "", (0,)),  # what the profiler writes on a CPU
    ):
        frame = dashboard.open(state(run=run))
        summary = frame.locator(".profiles summary", has_text=title)
        summary.wait_for()
        (said,) = find_profiles(str(dashboard.logdir / run))  # as `inspect` does
        assert len(said.parts) == steps
        tables = frame.locator(".profiles table")
        assert tables.count() == len(places)
        lines = [line.split("\t") for line in tables.last.locator("tbody tr").all_inner_texts()]
        assert lines == [
            [one.type, one.core, f"{one.count:,}", f"{one.total_us / 1000:,.3f}", f"{100 * one.share:.1f} %"]
            for one in said.operators
        ]
        assert lines[0][1] == core
        if steps:
            parts = [line.split("\t") for line in tables.first.locator("tbody tr").all_inner_texts()]
            assert parts[0] == ["Computing", "0.700", "70.0 %"]
            assert ["Communication", "0.250", "overlaps"] in parts
        summary.click()
        tables.last.wait_for(state="hidden")
        summary.click()
        tables.last.wait_for()


def test_ranks_are_a_heat_map_of_any_metric(dashboard: Dashboard) -> None:
    frame = dashboard.open(state(run="gpt/four_ranks"))
    heat = frame.locator("canvas.heat")
    frame.wait_for_function(
        "document.querySelector('canvas.heat').getAttribute('aria-label')?.startsWith('loss of 4 ranks')"
    )
    box = heat.bounding_box()
    assert box is not None
    heat.hover(position={"x": box["width"] - 10, "y": 2.5 * (box["height"] - 18) / 4})
    assert "rank 2, step 60: 2.15" in frame.locator(".ranks output").inner_text()
    heat.focus()
    dashboard.page.keyboard.press("ArrowUp")
    assert "rank 1, step 60: 0.1" in frame.locator(".ranks output").inner_text()
    frame.locator(".ranks").get_by_label("Metric").select_option("grad_norm")
    frame.wait_for_function("document.querySelector('canvas.heat').getAttribute('aria-label').startsWith('grad_norm')")
    assert frame.locator("[aria-label=Ranks] tbody tr").count() == 4
    found = frame.get_by_label("Ranks by aggregate").locator("tbody tr")
    assert found.nth(2).inner_text().split("\t") == ["2", "120", "60", "0", "0 %", "none"]
    frame.locator(".ranks").get_by_label("Metric").select_option("loss (aggregate)")
    frame.wait_for_function(
        "document.querySelector('canvas.heat').getAttribute('aria-label').startsWith('loss of 5 statistics over ranks')"
    )
    told = frame.locator(".ranks output")
    box = heat.bounding_box()
    assert box is not None
    for line, text in enumerate(
        ("max, step 60: 2.15", "median, step 60: 0.15", "mean, step 60: 0.625", "min, step 60: 0.05")
    ):
        heat.hover(position={"x": box["width"] - 5, "y": (line + 0.5) * (box["height"] - 18) / 5})
        assert text in told.inner_text()


# ---------------------------------------------------------------- what can be done with the table


def test_search_and_filters(dashboard: Dashboard) -> None:
    frame = dashboard.open()
    everything = names(frame)
    assert {*everything} >= {"lenet/slow", "llm/run", "tf", "gpt/four_ranks"}
    search = frame.get_by_label("Search runs")
    dashboard.page.keyboard.press("/")
    frame.wait_for_function("document.activeElement.type === 'search'")
    for text, expected in (
        ("lenet fast", {"lenet/fast"}),
        ("learning_rate>0.05", {"lenet/fast"}),
        ("seed=2", {"lenet/seeded"}),
        ("grad_norm", {"gpt/four_ranks"}),
        ("model=7b", {"llm/run"}),
        ("layer/weight", {"lenet/slow", "lenet/fast", "lenet/seeded"}),  # the tag of a histogram
        ("dataset_graph seeded", {"lenet/seeded"}),
    ):
        search.fill(text)
        frame.locator("h3", has_text=f"{len(expected)} of 7 runs").wait_for()
        assert {*names(frame)} == expected, text
    search.fill("^lenet/(fast|slow)$")
    frame.locator("h3", has_text="0 of 7 runs").wait_for()
    frame.get_by_text("nothing is checked", exact=True).wait_for()
    frame.get_by_role("button", name="Regular expression").click()
    frame.locator("h3", has_text="2 of 7 runs").wait_for()
    search.fill("len(")
    frame.locator("#search-error:not(:empty)").wait_for()
    assert search.get_attribute("aria-invalid") == "true"
    search.fill("")
    frame.locator(".chip", has_text="NaN loss").click()
    wait_names(frame, "llm/run")
    frame.get_by_text("nothing is checked: the first of the table", exact=True).wait_for()
    frame.locator(".chip", has_text="NaN loss").click()
    frame.locator(".chip", has_text="damaged").click()
    assert "lenet/fast" in names(frame)
    assert "lenet/slow" not in names(frame)
    assert "p.mindspore.health" in dashboard.page.url
    frame = dashboard.open(dashboard.page.url.partition("#mindspore")[2])
    assert "lenet/slow" not in names(frame), "a link shows what was seen"
    frame.get_by_role("button", name="Clear filters").click()
    assert len(names(frame)) == 7


def test_columns_are_chosen_remembered_and_ordered_by_difference(dashboard: Dashboard) -> None:
    frame = dashboard.open()
    heads = frame.locator("table.runs thead th").all_inner_texts()
    assert heads[:8] == ["Run", "State", "Health", "Loss", "Last loss", "Best loss", "eval/accuracy", "Age"]
    assert "parallel_mode" not in heads, "equal in all"
    frame.get_by_text("Columns", exact=True).click()
    frame.locator(".picker-items label").first.wait_for()
    listed = frame.locator(".picker-items label").all_inner_texts()
    differing = [text for text in listed if " values" in text]
    equal = [text for text in listed if "equal in all" in text]
    assert differing
    assert equal
    assert listed.index(differing[-1]) < listed.index(equal[0]), "those that differ most come first"
    counts = [int(text.split()[-2]) for text in differing]
    assert counts == sorted(counts, reverse=True)
    frame.get_by_label("parallel_mode").check()
    frame.locator("thead th", has_text="parallel_mode").wait_for()
    frame.get_by_label("Throughput").uncheck()
    dashboard.page.keyboard.press("Escape")
    frame.locator(".popup").wait_for(state="hidden")
    frame = dashboard.open()
    heads = frame.locator("table.runs thead th").all_inner_texts()
    assert "parallel_mode" in heads, "the choice is remembered"
    assert "Throughput" not in heads
    frame.get_by_label("only what differs").check()
    frame.locator("thead th", has_text="loss_function").wait_for(state="detached")
    with dashboard.page.expect_download() as download:
        frame.locator(".toolbar").get_by_role("button", name="CSV").click()
    lines = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    slow = next(line for line in lines if line["run"] == "lenet/slow")
    assert (slow["State"], float(slow["Best loss"])) == ("ended", pytest.approx(0.11))
    assert len(lines) == 7
    with dashboard.page.expect_download() as picture:
        frame.locator(".toolbar").get_by_role("button", name="PNG").click()
    assert picture.value.suggested_filename == "runs.png"
    with Pillow.open(picture.value.path()) as image:
        wide, high = image.size
        assert (wide > 800, high) == (True, (7 + 2) * 30 + 10), "a title, the headings, and a line for each run"
        assert len(image.convert("RGB").getcolors(1 << 24) or ()) > 100
    frame.get_by_text("Columns", exact=True).click()
    frame.get_by_label("Find a column").fill("throu")
    frame.locator(".picker-items label").nth(1).wait_for(state="detached")
    frame.get_by_role("button", name="Usual").click()
    frame.get_by_label("Throughput").and_(frame.locator(":checked")).wait_for()
    frame.get_by_label("only what differs").uncheck()
    frame.locator("thead th", has_text="parallel_mode").wait_for(state="detached")


def test_sorting_goes_round(dashboard: Dashboard) -> None:
    frame = dashboard.open()
    newest, head = names(frame), frame.locator("th button", has_text="Best loss")
    orders = []
    for sorting in ("ascending", "descending", "none"):
        head.click()
        frame.locator(f"th[data-column=best][aria-sort={sorting}]").wait_for()
        orders.append(names(frame))
    assert orders[0][:2] == ["gpt/four_ranks", "lenet/seeded"]
    assert orders[1][-1] == "gpt/four_ranks"
    assert orders[2] == newest


def test_pin_hide_baseline_and_groups(dashboard: Dashboard) -> None:
    frame = dashboard.open()
    frame.get_by_label("Compare lenet/slow", exact=True).check()
    for name, is_first in (("Pin", True), ("Unpin", False), ("Pin", True)):
        frame.get_by_role("button", name=name, exact=True).click()
        assert (names(frame)[0] == "lenet/slow") == is_first
    frame.get_by_role("button", name="Baseline").click()
    frame.locator("tr.pinned .mark", has_text="baseline").wait_for()
    fast = frame.locator("tr[data-key='lenet/fast']").inner_text()
    assert "+0.09" in fast, "the difference from the baseline"
    frame.get_by_role("button", name="Hide", exact=True).click()
    assert "lenet/slow" not in names(frame)
    frame.get_by_label("show them").check()
    assert "lenet/slow" in names(frame)
    frame.get_by_role("button", name="Unhide all").click()
    frame.get_by_role("button", name="No baseline").click()
    frame.get_by_label("Group by").select_option("folder")
    group = frame.locator("tr.group", has_text="lenet")
    assert "0.14 ± 0.042" in group.inner_text(), "mean and spread of the best loss"
    group.locator("button.fold").click()
    frame.locator("tr[data-key='lenet/fast']").wait_for(state="detached")
    frame.get_by_label("Group by").select_option("set:seed")
    frame.locator("tr.group", has_text="seed = 2").wait_for()
    frame.locator(".overlay .legend", has_text="seed = 1 (mean of 2)").wait_for()
    frame.get_by_label("Compare the runs of seed = 1").check()
    frame.get_by_text("2 checked", exact=True).first.wait_for()  # the pinned one as well
    frame.get_by_role("button", name="Uncheck").click()
    frame.get_by_label("Group by").select_option("")
    frame.get_by_label("Check all that are shown").check()
    frame.get_by_text("7 checked", exact=True).first.wait_for()
    frame.get_by_label("Check all that are shown").uncheck()
    frame.get_by_label("Compare lenet/slow", exact=True).check()
    frame.get_by_label("Compare tf", exact=True).check()
    frame.get_by_role("button", name="Show only these").click()
    frame.locator("h3", has_text="2 of 7 runs").wait_for()
    assert {*names(frame)} == {"lenet/slow", "tf"}


def test_what_changed_between_two_runs(dashboard: Dashboard, capsys: pytest.CaptureFixture[str]) -> None:
    card = ".changes:not([hidden])"
    for a, b, where in (
        ("lenet/slow", "lenet/fast", {"check": ["lenet/slow", "lenet/fast"]}),
        ("lenet/slow", "lenet/seeded", {"check": ["lenet/seeded"], "base": "lenet/slow"}),
        ("llm/run", "gpt/four_ranks", {"check": ["llm/run", "gpt/four_ranks"]}),
    ):
        frame = dashboard.open(state(**where))
        assert frame.locator(card).count() == 0
        frame.get_by_role("button", name="What changed").click()
        frame.locator(f"{card} p").wait_for()
        capsys.readouterr()
        main(["diff", *(str(dashboard.logdir / name) for name in (a, b)), "--json"])
        said = json.loads(capsys.readouterr().out)
        heads = frame.locator(f"{card} thead th").all_inner_texts()
        assert [" ".join(head.split()) for head in heads] == [f"A {a}", f"B {b}"]
        shown = frame.locator(f"{card} tr[data-section]").evaluate_all(
            "all => all.map(one => [one.dataset.section, ...[...one.children].map(cell => cell.textContent)])"
        )
        assert shown == [
            [one["section"], one["name"] or one["section"], show_value(one["a"]), show_value(one["b"])]
            for one in said["changes"]
        ]
        loss = None if said["loss"] is None else msgspec.convert(said["loss"], LossDiff)
        assert frame.locator(f"{card} p").inner_text() == describe_loss(loss)
        assert "p.mindspore.changes=1" in dashboard.page.url
        assert frame.locator(f"{card} li").count() == len(said["problems"])
    frame = dashboard.open(dashboard.page.url.partition("#mindspore")[2])
    frame.locator(f"{card} p").wait_for()  # a link shows what was seen
    frame.locator(".scroll.table").focus()
    dashboard.page.keyboard.press("d")
    frame.locator(card).wait_for(state="hidden")
    dashboard.page.keyboard.press("d")
    frame.get_by_role("button", name="Close what changed").click()
    frame.locator(card).wait_for(state="hidden")
    frame.get_by_label("Compare tf", exact=True).check()
    frame.get_by_role("button", name="What changed").wait_for(state="hidden")  # of three it cannot be said


def test_checked_runs_over_each_other(dashboard: Dashboard) -> None:
    frame = dashboard.open()
    frame.get_by_label("Compare lenet/slow", exact=True).check()
    frame.get_by_label("Compare lenet/fast", exact=True).check()
    legend = frame.locator(".overlay .legend tbody tr")
    frame.wait_for_function("document.querySelectorAll('.overlay .legend tbody tr').length === 2")
    assert [line.split("\t")[1:] for line in legend.all_inner_texts()] == [
        ["lenet/slow", "", "0.11", "0.11 at 20", "2.01 at 1"],
        ["lenet/fast", "", "0.2", "0.2 at 20", "2.1 at 1"],
    ]
    frame.get_by_label("Compare llm/run", exact=True).check()
    broken = frame.locator(".overlay .legend tr", has_text="llm/run")
    broken.wait_for()
    assert broken.inner_text().split("\t")[3] == "not finite", "what is last is told, not what was finite last"
    frame.get_by_label("Compare llm/run", exact=True).uncheck()
    broken.wait_for(state="detached")
    frame.get_by_label("log", exact=True).check()
    frame.get_by_label("outliers").check()
    frame.get_by_label("Smoothing").fill("0.6")
    frame.get_by_label("Axis").select_option("time")
    frame.wait_for_function("!document.querySelector('.overlay .legend tbody').textContent.includes(' at ')")
    for said in ("p.mindspore.log=1", "p.mindspore.out=1", "p.mindspore.smooth=0.6", "p.mindspore.x=time"):
        assert said in dashboard.page.url
    plot = frame.locator(".overlay .plot").first
    plot.focus()
    for _ in range(3):
        dashboard.page.keyboard.press("ArrowRight")
    frame.wait_for_function("document.querySelector('.overlay td.value').textContent !== ''")
    box = plot.bounding_box()
    assert box is not None
    mouse, middle = dashboard.page.mouse, box["y"] + 100
    before = photograph_once(dashboard.page, "page-zoom").read_bytes()
    mouse.move(box["x"] + 200, middle)
    mouse.down()
    mouse.move(box["x"] + 400, middle, steps=5)
    mouse.up()
    assert photograph_once(dashboard.page, "page-zoom").read_bytes() != before
    plot.dblclick(position={"x": 300, "y": 100})
    frame.get_by_role("button", name="+ chart").click()
    tag = frame.get_by_label("Tag of chart 2")
    frame.get_by_label("Compare gpt/four_ranks", exact=True).check()
    tag.fill("grad_norm")
    tag.press("Enter")
    frame.locator(".chart-card").nth(1).locator(".legend tbody tr", has_text="gpt/four_ranks").wait_for()
    frame.get_by_label("Compare gpt/four_ranks", exact=True).uncheck()
    third = frame.locator(".chart-card").first.locator(".legend tbody tr", has_text="gpt/four_ranks")
    third.wait_for(state="detached")
    with dashboard.page.expect_download() as picture:
        frame.locator(".chart-card").first.get_by_role("button", name="PNG").click()
    with Pillow.open(picture.value.path()) as image:
        assert min(image.size) > 200
        assert len(image.convert("RGB").getcolors(1 << 24) or ()) > 20
    with dashboard.page.expect_download() as table:
        frame.locator(".chart-card").first.get_by_role("button", name="CSV").click()
    lines = Path(table.value.path()).read_text().splitlines()
    assert lines[0] == "run,seconds,loss"
    assert len(lines) == 1 + 40
    frame.get_by_role("button", name="Close chart 2").click()
    frame.wait_for_function("document.querySelectorAll('.chart-card').length === 1")


def test_the_keyboard_reaches_all(dashboard: Dashboard) -> None:
    frame = dashboard.open()
    keys = dashboard.page.keyboard
    frame.locator(".scroll.table").focus()
    keys.press("ArrowDown")
    keys.press("ArrowDown")
    second = names(frame)[1]
    assert frame.locator("tr[aria-current=true] button.name").inner_text() == second
    keys.press(" ")
    assert frame.get_by_label(f"Compare {second}", exact=True).is_checked()
    keys.press("p")
    assert names(frame)[0] == second
    keys.press("b")
    frame.locator(".mark", has_text="baseline").wait_for()
    keys.press("b")
    keys.press("p")
    keys.press("Enter")
    frame.wait_for_function("document.activeElement.tagName === 'H2'")
    keys.press("Escape")
    frame.locator("table.runs").wait_for()
    frame.wait_for_function("document.activeElement.classList.contains('table')")
    keys.press("h")
    assert second not in names(frame)
    dashboard.page.go_back()
    frame.wait_for_function("document.querySelector('.run h2').checkVisibility()")


# ---------------------------------------------------------------- a thousand runs


def test_a_thousand_runs_are_fast_and_little_is_sent(dashboard: Dashboard) -> None:
    with dashboard.of_many_runs(1000) as asked:
        frame = dashboard.open(width=1024)
        frame.locator("h3", has_text="1000 runs").wait_for()
        assert frame.locator("table.runs tbody tr").count() < 60, "only what is on the screen is in the document"
        assert names(frame)[0] == "sweep/run-0000", "the newest comes first"
        frame.locator(".scroll.table").focus()
        dashboard.page.keyboard.press("End")
        frame.locator("tr[data-key='sweep/run-0999']").wait_for()
        dashboard.page.keyboard.press("PageUp")
        frame.locator("tr[aria-current=true]:not([data-key='sweep/run-0999'])").wait_for()
        dashboard.page.keyboard.press("Home")
        frame.locator("tr[aria-current=true][data-key='sweep/run-0000']").wait_for()
        took = frame.evaluate(
            """async () => {
            const field = document.querySelector('input[type=search]');
            const begun = performance.now();
            field.value = 'learning_rate>0.0049';
            field.dispatchEvent(new Event('input'));
            return performance.now() - begun;
            }"""
        )
        frame.locator("h3", has_text="20 of 1000 runs").wait_for()
        assert took < 1000
        frame.wait_for_timeout(1000)
        before = len(asked)
        frame.wait_for_timeout(6_000)
        assert len(asked) > before
        assert all("/runs?cursor=" in url for url in asked[before:]), "what is known is not asked for again"
    cursor = dashboard.client.get_json("data/plugin/mindspore/runs")["cursor"]
    idle = dashboard.client.get(f"data/plugin/mindspore/runs?cursor={quote(cursor)}")
    assert json.loads(idle)["rows"] == []
    assert len(idle) < 1_000, "an idle question costs little"


# ---------------------------------------------------------------- for everybody


def test_numbers_are_written_as_people_write_them(dashboard: Dashboard) -> None:
    frame = dashboard.open()
    shown = frame.evaluate(
        """async () => {
        const {age, brief, duration, size} = await import(new URL('format.js', document.baseURI));
        const numbers = [6.4e-6, 958e6, 0.031251, 1234.5678, 1e15, -2e-7, 12, 1.5e9];
        return [...numbers.map(brief), age(100, 7300), duration(3661), size(2048)];
        }"""
    )
    numbers = ["6.4e-06", "958 M", "0.03125", "1235", "1e+15", "-2e-07", "12", "1.5 G"]
    assert shown == [*numbers, "2 h", "1:01:01", "2.0 KiB"]
    aligned = frame.evaluate(
        """() => {
        const heads = [...document.querySelectorAll('table.runs thead tr > *')].map((one) => one.textContent);
        const cells = document.querySelector("tr[data-key='lenet/fast']").children;
        return Object.fromEntries(heads.map((title, index) => {
            const badges = [...cells[index].querySelectorAll('.badge')];
            const isFilled = (one) => getComputedStyle(one).backgroundColor !== 'rgba(0, 0, 0, 0)';
            return [title, [getComputedStyle(cells[index]).textAlign, badges.length, badges.every(isFilled)]];
        }));
        }"""
    )
    expected = {"State": ["left", 1, True], "Health": ["left", 1, True]}
    age_seen = frame.locator("tr[data-key='lenet/fast'] td").nth([*aligned].index("Age") - 1)
    assert (age_seen.get_attribute("title") or "").startswith("20"), "when it was"
    expected |= {title: ["right", 0, True] for title in ("Last loss", "Best loss", "Last step", "learning_rate")}
    assert {title: aligned[title] for title in expected} == expected


def test_words_and_axes_hold_for_all_values(dashboard: Dashboard) -> None:
    frame = dashboard.open()
    words, axes, tops = frame.evaluate(
        """async () => {
        const load = (name) => import(new URL(name, document.baseURI));
        const {betterWay, findColumns, stateBadge} = await load('columns.js');
        const {notFinite} = await load('format.js');
        const {Plot} = await load('plot.js');
        const rows = [{settings: {lr: 1}, eval: {}, formats: [], ranks: 1}];
        const columns = findColumns(rows, [{name: 'lr', known: 1, distinct: 1, usual: 1}], () => 0);
        const states = [['non-finite', 'inf'], ['non-finite', 'nan'], ['ended', 1]];
        const words = [
            ...['answer_accuracy', 'val/wer', 'eval_loss', 'mAP', 'valloss'].map(betterWay),
            columns.find((one) => one.id === 'set:lr').tip,
            ...states.map((one) => stateBadge(...one).textContent), notFinite('-inf'), notFinite('nan'),
        ];
        const plot = new Plot('test', 300);
        document.body.append(plot.root);
        const axes = [];
        for (const size of [4e36, 1e-12, 3]) {
            const curve = {key: String(size), name: '', colour: '#000', xs: [0, 1, 2, 3], ys: [size, 0, size, 0]};
            const marks = [1, 1, 3].map((x) => ({x, kind: 'end', text: ''}));
            plot.draw({curves: [curve], axis: 'step', log: false, marks});
            await new Promise(requestAnimationFrame);
            axes.push(plot.chart.axes.map((axis) => axis._values.filter(Boolean)));
        }
        const tops = [...plot.root.querySelectorAll('.happening')].map((one) => one.style.top);
        plot.root.remove();
        return [words, axes, tops];
        }"""
    )
    tip = "lr: 1 value in 1 run, most have 1"
    assert words == [1, -1, -1, 1, -1, tip, "Inf loss", "NaN loss", "ended", "-Inf", "NaN"]
    for steps, values in axes:
        assert steps == ["0", "1", "2", "3"], "there is no half of a step"
        assert len(values) >= 4, "whatever its size, a value can be read"
    assert tops == ["0px", "12px", "0px"], "nothing that happened at one step hides the other"


def test_a_run_that_went_astray_does_not_flatten_the_others(dashboard: Dashboard) -> None:
    frame = dashboard.open()
    ranges = frame.evaluate(
        """async () => {
        const {usualRange} = await import(new URL('curves.js', document.baseURI));
        const steps = Array.from({length: 30}, (_, index) => index);
        const made = (act) => ({xs: steps, ys: steps.map(act)});
        const falling = [1, 1.2, 0.9].map((scale) => made((step) => scale * 1.6 / (1 + step / 15)));
        const astray = made((step) => step % 3 ? 30 + step : null);
        const cases = [[...falling, astray], falling, [astray, astray, falling[0]], []];
        return cases.map(usualRange);
        }"""
    )
    low, high = ranges[0]
    assert 0 < low < 1
    assert 1.5 < high < 4
    assert ranges[1:] == [None, None, None]


@pytest.mark.parametrize("width", [1024, 700, 390])
def test_nothing_is_off_the_screen(dashboard: Dashboard, width: int) -> None:
    """What is wider than its place is scrolled there; the page itself never is, and each button can be pressed."""
    for where in (
        state(check=["lenet/slow", "lenet/fast"], changes="1", hide=["tf"]),
        state(run="gpt/four_ranks"),
        state(run="lenet/fast"),
    ):
        frame = dashboard.open(where, width=width, height=800)
        frame.locator(".plot .u-over").first.wait_for()
        frame.locator(".changes p, .ranks tbody tr, .reading").first.wait_for()
        if "check=" in where:
            frame.get_by_text("Columns", exact=True).click()
        found = frame.evaluate(
            """() => {
            const all = [...document.querySelectorAll('button, input, select, summary, a, h2, h3, canvas, .plot')];
            const isOff = ({left, right}) => right > innerWidth + 1 || left < -1;
            const off = all.filter((one) => one.checkVisibility() && !one.closest('.scroll'))
                .filter((one) => isOff(one.getBoundingClientRect()));
            const wide = document.documentElement.scrollWidth - innerWidth;
            return [wide, ...off.map((one) => one.outerHTML.slice(0, 100))];
            }"""
        )
        assert found == [0], (where, found)


def test_tab_reaches_each_control(dashboard: Dashboard) -> None:
    for where in (
        state(check=["lenet/slow", "lenet/fast"], changes="1", chart=["", "loss"]),
        state(run="gpt/four_ranks"),
    ):
        frame = dashboard.open(where)
        frame.locator(".changes p, .ranks tbody tr").first.wait_for()
        frame.locator(".plot .u-over").first.wait_for()
        frame.evaluate("document.activeElement.blur()")
        frame.locator("header button").last.focus()  # the first of the page
        wanted = frame.evaluate(
            """() => {
            const all = [...document.querySelectorAll('button, input, select, summary, a, .heat, .plot, .scroll')];
            window.wanted = all.filter((one) => one.checkVisibility() && !one.disabled);
            window.met = new Set([document.activeElement]);
            document.addEventListener('focusin', (event) => window.met.add(event.target));
            return window.wanted.length;
            }"""
        )
        for _ in range(wanted + 5):
            dashboard.page.keyboard.press("Tab")
        missed = "window.wanted.filter((one) => one.isConnected && !window.met.has(one))"
        assert frame.evaluate(f"{missed}.map((one) => one.outerHTML.slice(0, 100))") == []
        assert wanted > 20


def test_an_empty_logdir_says_how_to_record(dashboard: Dashboard, tmp_path: Path) -> None:
    answer = Collected(tmp_path).all()
    pattern = "**/data/plugin/mindspore/runs*"
    dashboard.page.route(pattern, lambda route: route.fulfill(json=answer))
    try:
        dashboard.page.goto("about:blank")
        dashboard.page.goto(f"{dashboard.client.url}/#mindspore")
        frame = dashboard.page.locator('iframe[src*="name=mindspore"]').element_handle().content_frame()
        assert frame is not None
        frame.locator(".advice h2", has_text="No run yet").wait_for()
        said = frame.locator(".advice").inner_text()
        for text in ("SummaryBridge(", "SummaryCollector(", "SummaryWriter(", str(tmp_path / "run1")):
            assert text in said
        assert not frame.locator("table.runs").is_visible()
    finally:
        dashboard.page.unroute(pattern)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(dashboard: Dashboard, dark: bool) -> None:
    found: list[Any] = []
    for where, last in (
        ("", ".overlay .legend tbody tr"),
        (state(group="folder", check=["lenet/slow"], base="lenet/fast", changes="1"), ".changes p"),
        (state(run="lenet/fast"), ".reading"),
        (state(run="gpt/four_ranks"), ".times table"),
    ):
        frame = dashboard.open(where, dark=dark)
        frame.locator(".plot .u-over").first.wait_for()
        frame.locator(last).first.wait_for()
        frame.evaluate(AXE.read_text(encoding="utf-8"))
        answer = frame.evaluate("axe.run()")
        assert len(answer["passes"]) > 10, "it looked"
        found += [
            (where, one["id"], [node["html"][:150] for node in one["nodes"][:3]], one["nodes"][0]["failureSummary"])
            for one in answer["violations"]
            if one["impact"] in ("serious", "critical")
        ]
    assert found == []


def test_every_control_was_used(dashboard: Dashboard) -> None:
    """Comes last: what the tests before it saw on the page, they have pressed, filled in or moved over."""
    if {name for name in globals() if name.startswith("test_")} - RAN:
        pytest.skip("the tests of this file use the controls together, and some did not run in this process")
    seen, used = dashboard.controls["seen"], dashboard.controls["used"]
    assert len(seen) > 40, sorted(seen)
    assert sorted(seen - used) == []
