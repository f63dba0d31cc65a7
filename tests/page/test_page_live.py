"""The live page and the list of runs in a real browser: messages change data, not the reader's choices."""

import pytest
from page_files import SAMPLES, draw_all, followed, listed, saved, send
from playwright.sync_api import Page, expect
from sample_data import grown, page, sample_run, shortened

RUN = sample_run(12, 40, adversaries=3)
PLOT = "document.querySelector('#weights .plot')"


def start(open_page, folder, rounds: int = 10):
    opened = open_page(followed(folder))
    expect(opened.page.get_by_text("Waiting for the first message")).to_be_visible()
    send(opened.page, {"type": "snapshot", "data": page(shortened(RUN, rounds), live=True)})
    return opened


def after(end: int, start: int, **fields):
    return grown(shortened(RUN, end), start, status="running", seconds=0.41 * end, **fields)


def wait_for_columns(shown: Page, count: int) -> None:
    """Wait until the heat map has been drawn with so many rounds."""
    wait_for(shown, f"{PLOT}.data[0].z[0].length === {count}")


def wait_for(shown: Page, condition: str) -> None:
    for _ in range(200):
        if shown.evaluate(condition):
            return
        shown.wait_for_timeout(100)
    raise AssertionError(condition)


def test_updates_continue_every_series(open_page, tmp_path):
    opened = start(open_page, tmp_path)
    shown = opened.page
    expect(shown.locator(".status")).to_contain_text("round 10 of 40, about 13")
    draw_all(shown)
    send(shown, after(25, 8))
    expect(shown.locator(".status")).to_contain_text("round 25 of 40")
    shown.locator("#weights").scroll_into_view_if_needed()
    wait_for_columns(shown, 25)
    run = shown.evaluate("document.querySelector('#weights figure').figure.compute().table.rows()")
    expected = [
        RUN["cells"]["weight"][k][RUN["clients"].index(client)] for client in by_share() for k in range(25)
    ]
    assert [row[2] for row in run] == expected
    scores = shown.evaluate("document.querySelector('#model figure').figure.compute().table")
    assert scores["columns"][1] == "test accuracy"
    assert (
        shown.evaluate("document.querySelector('#model figure').figure.compute().table.rows().map(r => r[1])")
        == (RUN["rounds"]["metrics"]["accuracy"][:25])
    )
    assert opened.errors == []


def by_share():
    return sorted(RUN["clients"], key=lambda client: -client["share"])


def test_zoom_choices_tables_and_scroll_are_kept(open_page, tmp_path):
    shown = start(open_page, tmp_path).page
    draw_all(shown)
    shown.get_by_label("Sort by").select_option("rejected")
    shown.get_by_label("Find").fill("site")
    shown.locator("#weights").get_by_label("name", exact=True).check()
    shown.get_by_label("Add a client").fill("site-004")
    shown.locator("#evidence").select_option("norm")
    shown.evaluate(f"{PLOT}.closest('figure').figure.setZoom([2.5, 6.5], [5.5, 1.5])")
    shown.locator("#weights details summary").first.click()
    shown.locator("#chosen").scroll_into_view_if_needed()
    place = shown.evaluate("scrollY")
    before = shown.locator(".chips").inner_text()
    for end in (15, 20, 30):
        send(shown, after(end, end - 7))
    send(shown, {"type": "snapshot", "data": page(shortened(RUN, 35), live=True)})
    shown.locator("#weights").scroll_into_view_if_needed()
    wait_for_columns(shown, 35)
    assert shown.evaluate(f"[{PLOT}.layout.xaxis.range, {PLOT}.layout.yaxis.range]") == [
        [2.5, 6.5],
        [5.5, 1.5],
    ]
    assert shown.locator(".chips").inner_text() == before
    assert "site-004" in before
    assert shown.locator("#evidence").input_value() == "norm"
    assert shown.get_by_label("Sort by").input_value() == "rejected"
    assert shown.get_by_label("Find").input_value() == "site"
    assert shown.locator("#weights").get_by_label("name", exact=True).is_checked()
    expect(shown.locator("#weights figure").first.locator("tbody tr")).to_have_count(12 * 35)
    shown.locator("#chosen").scroll_into_view_if_needed()
    assert abs(shown.evaluate("scrollY") - place) < 400


def test_memory_is_bounded(open_page, tmp_path):
    shown = start(open_page, tmp_path).page
    draw_all(shown)
    rows = "document.querySelector('#weights figure').figure.compute().table.rows().length"
    size = f"[document.querySelectorAll('*').length, {rows}]"
    shown.locator("#weights").scroll_into_view_if_needed()
    send(shown, after(20, 10))
    wait_for_columns(shown, 20)
    shown.wait_for_timeout(1300)  # other charts are drawn, too
    first = shown.evaluate(size)
    for _ in range(100):
        send(shown, after(20, 10))
    shown.wait_for_timeout(1300)
    assert shown.evaluate(size) == first


def test_a_chart_is_drawn_at_most_once_a_second(open_page, tmp_path):
    shown = start(open_page, tmp_path).page
    draw_all(shown)
    shown.locator("#weights").scroll_into_view_if_needed()
    shown.wait_for_timeout(1300)
    shown.evaluate(
        "() => { window.drawn = 0; const react = Plotly.react; Plotly.react = (...all) => {"
        " window.drawn += all[0].closest('#weights figure:first-child') ? 1 : 0; return react(...all); }; }"
    )
    for end in range(11, 31):
        send(shown, after(end, end - 1))
    wait_for(shown, "drawn > 0")
    shown.wait_for_timeout(500)
    assert shown.evaluate("drawn") <= 2


def test_a_metric_that_starts_late_is_preceded_by_gaps(open_page, tmp_path):
    shown = start(open_page, tmp_path).page
    message = after(12, 10)
    message["rounds"]["metrics"]["temperature"] = [1.5, 1.4]
    send(shown, message)
    table = "document.querySelector('#model figure').figure.compute().table"
    assert "temperature" in shown.evaluate(f"{table}.columns")
    assert shown.evaluate(f"{table}.rows().map(row => row.at(-1))") == [None] * 10 + [1.5, 1.4]


def test_the_state_of_the_connection_and_the_end_are_shown(open_page, tmp_path):
    opened = start(open_page, tmp_path)
    shown, state = opened.page, opened.page.locator("#state")
    expect(state).to_have_text("live")
    expect(shown.locator("#announce")).to_contain_text("round 10 of 40")
    shown.evaluate("feed.onerror()")
    expect(state).to_have_text("connection lost, trying again")
    expect(shown.locator("#announce")).to_have_text("The connection is lost.")
    shown.evaluate("feed.onopen()")
    send(shown, {"type": "snapshot", "data": page(shortened(RUN, 20), live=True)})
    expect(state).to_have_text("live")
    send(shown, grown(RUN, 20, status="finished"))
    expect(state).to_have_text("the run has ended")
    expect(shown.locator("#announce")).to_contain_text("The run is finished.")
    expect(shown.locator(".status .badge")).to_contain_text("finished")
    expect(shown.locator("progress")).to_be_hidden()
    assert opened.errors == []


def test_a_run_is_shown_before_its_first_round(open_page, tmp_path):
    opened = open_page(followed(tmp_path))
    run = shortened(RUN, 0)
    run["rounds"]["metrics"], run["calibration"] = {}, None
    for client in run["clients"]:
        client.update(share=None, score=None, verdict=f"{client['id']} has not taken part yet.")
    send(opened.page, {"type": "snapshot", "data": page(run, live=True)})
    expect(opened.page.locator(".status")).to_contain_text("round 0 of 40")
    opened.page.get_by_role("button", name="Dark theme").click()
    send(opened.page, after(3, 0, clients=RUN["clients"]))
    assert draw_all(opened.page) > 5
    assert opened.errors == []


def row(key: str, **fields):
    values = {"name": key, "about": "digits", "status": "finished", "error": None, "done": 30, "planned": 30}
    more = {"score": 0.9, "score_name": "accuracy", "rule": "majority", "seed": 0, "seconds": 12.0}
    return {"key": key, "started": f"2026-01-01T12:00:0{key[-1]}+00:00"} | values | more | fields


def test_the_list_sorts_filters_compares_and_keeps_the_choice(open_page, tmp_path):
    opened = open_page(listed(tmp_path))
    shown = opened.page
    expect(shown.get_by_text("There is no run in this folder yet.")).to_be_visible()
    runs = [
        row("a1", score=0.7),
        row("b2&x x2", score=0.9, status="running"),
        row("c3", score=0.8),
        row("<i>4", score=None),
    ]
    shown.evaluate("runs => { listing = {runs}; }", runs)
    names = shown.locator("tbody a bdi")
    expect(names).to_have_text(["<i>4", "c3", "b2&x x2", "a1"], timeout=6000)
    shown.get_by_role("button", name="Score").click()
    expect(names).to_have_text(["b2&x x2", "c3", "a1", "<i>4"])
    assert shown.locator("th[aria-sort=descending]").inner_text().startswith("Score")
    expect(shown.get_by_text("Compare: choose two or more runs")).to_be_visible()
    shown.get_by_label("Compare a1").check()
    shown.get_by_label("Compare b2&x x2").check()
    shown.evaluate("runs => { listing = {runs}; }", [*runs, row("e5", score=0.95)])
    expect(names).to_have_count(5, timeout=6000)
    expect(shown.get_by_label("Compare b2&x x2")).to_be_focused()
    expect(shown.get_by_label("Compare b2&x x2")).to_be_checked()
    expect(shown.get_by_label("Compare e5")).not_to_be_checked()
    compare = shown.get_by_role("link", name="Compare 2 runs")
    assert compare.get_attribute("href") == "compare/?run=a1&run=b2%26x%20x2"
    shown.get_by_label("Find").fill("b2&x")
    expect(names).to_have_text(["b2&x x2"])
    assert names.locator("..").get_attribute("href") == "run/b2%26x%20x2/"
    shown.evaluate("() => { listing = null; }")
    expect(shown.get_by_text("The server does not answer.")).to_be_visible(timeout=6000)
    assert opened.errors == []


@pytest.mark.parametrize(
    ("name", "dark", "width"),
    [
        ("adversaries and posteriors", False, 1280),
        ("hostile names", False, 375),
        ("two runs", True, 375),
    ],
)
def test_axe_finds_nothing_serious(name, dark, width, open_page, axe, tmp_path):
    shown = open_page(saved(tmp_path, SAMPLES[name]()), dark=dark, width=width).page
    draw_all(shown)
    for summary in shown.locator("details:visible > summary").all():
        summary.click()
    assert axe(shown) == []


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious_in_the_live_page_and_the_list(dark, open_page, axe, tmp_path):
    (tmp_path / "live").mkdir()
    shown = open_page(followed(tmp_path / "live"), dark=dark).page
    send(shown, {"type": "snapshot", "data": page(shortened(RUN, 10), live=True)})
    draw_all(shown)
    assert axe(shown) == []
    shown = open_page(listed(tmp_path), dark=dark).page
    shown.evaluate(
        "runs => { listing = {runs}; }", [row("a1"), row("b2", status="failed", error="no memory")]
    )
    shown.locator("tbody a").first.wait_for(timeout=6000)
    assert axe(shown) == []
