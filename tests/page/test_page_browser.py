"""The saved page in a real browser: it draws every sample, answers mouse and keyboard, and trusts no text."""

import base64
import gzip
import json
from pathlib import Path

import pytest
from page_files import SAMPLES, draw_all, labels, saved
from playwright.sync_api import expect
from sample_data import HOSTILE, page, sample_run

MAP = "#weights figure >> nth=0"


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_drawn_without_errors_or_requests(name, open_page, tmp_path):
    opened = open_page(saved(tmp_path, SAMPLES[name]()))
    assert draw_all(opened.page) >= 7
    assert opened.errors == []
    assert opened.outside() == []
    assert opened.page.evaluate("window.hacked") is None


def test_sections_without_data_are_left_out(open_page, tmp_path):
    shown = open_page(saved(tmp_path, page(sample_run(4, 5, task="regression")))).page
    assert shown.locator("nav a").all_inner_texts() == [
        "Summary",
        "Verdicts",
        "Weights",
        "Clients",
        "Model",
        "Fairness",
        "Traffic",
        "Run again",
    ]
    expect(shown.locator("#detection")).to_be_hidden()
    expect(shown.get_by_text("Reliability diagram")).to_be_hidden()


def test_the_narrow_page_has_no_sideways_scroll(open_page, tmp_path):
    shown = open_page(saved(tmp_path, SAMPLES["hostile names"]()), width=375).page
    draw_all(shown)
    assert shown.evaluate("document.documentElement.scrollWidth") == 375


def test_verdicts_sort_filter_and_grow(open_page, tmp_path):
    shown = open_page(saved(tmp_path, page(sample_run(40, 5, adversaries=3)))).page
    rows = shown.locator(".verdicts tbody tr")
    expect(rows).to_have_count(30)
    assert {rows.nth(row).locator("bdi").inner_text() for row in range(3)} == {
        "site-037",
        "site-038",
        "site-039",
    }
    expect(rows.nth(0)).to_contain_text("adversary in this simulation")
    expect(rows.nth(5)).not_to_contain_text("adversary")
    shown.get_by_label("Sort by").select_option("name")
    expect(rows.nth(0)).to_contain_text("site-000")
    shown.get_by_role("button", name="Show all 40").click()
    expect(rows).to_have_count(40)
    shown.get_by_label("Find").fill("site-01")
    expect(rows).to_have_count(10)


def test_clients_are_chosen_by_name_and_removed(open_page, tmp_path):
    shown = open_page(saved(tmp_path, page(sample_run(20, 5, adversaries=3)))).page
    draw_all(shown)
    chips = shown.locator(".chips li bdi")
    lowest = chips.all_inner_texts()[:3]
    assert set(lowest) == {"site-017", "site-018", "site-019"}
    shown.get_by_label("Add a client").fill("site-004")
    assert "site-004" in chips.all_inner_texts()
    shown.get_by_role("button", name="Remove site-004").click()
    assert "site-004" not in chips.all_inner_texts()
    shown.get_by_label("Add a client").fill("unknown")
    shown.keyboard.press("Enter")
    expect(shown.get_by_text("No client has that name.")).to_be_visible()


def test_zooming_one_chart_moves_the_others_along_the_rounds(open_page, tmp_path):
    shown = open_page(saved(tmp_path, page(sample_run(5, 30)))).page
    draw_all(shown)
    area = shown.locator("#chosen .nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    shown.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 60)
    shown.mouse.down()
    shown.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=5)
    shown.mouse.up()
    ranges = "[...document.querySelectorAll('#chosen .plot')].map(plot => plot.layout.xaxis.range)"
    expect(shown.locator("#chosen").get_by_role("button", name="Reset zoom")).to_be_visible()
    first, *others = shown.evaluate(ranges)
    assert 7 < first[0] < 10
    assert 14 < first[1] < 17
    assert others == [first, first]


def test_hostile_names_are_shown_as_text(open_page, tmp_path):
    opened = open_page(saved(tmp_path, SAMPLES["hostile names"]()))
    shown = opened.page
    draw_all(shown)
    shown.locator("#chosen details summary").click()
    names = shown.locator(".verdicts tbody bdi").all_inner_texts()
    assert "␣␣␣" in names
    assert "\\u202eoslo" in names
    assert "a␀b␛[31m" in names
    assert {"__proto__", "constructor", "%{x}", "{{x}} ${x}"} <= set(names)
    assert max(map(len, names)) <= 32
    shown.locator(MAP).get_by_label("name").check()
    assert {"%{x}", "<b>bold</b><br…ink</a>"} <= set(labels(shown))
    assert shown.locator("main img, main svg a, main b").count() == 0
    assert shown.evaluate("window.hacked") is None
    assert opened.errors == []


def test_tables_are_made_when_opened_and_copied_safely(open_page, tmp_path):
    run = sample_run(names=["=SUM(1)", "b", "c"], rounds=400)
    shown = open_page(saved(tmp_path, page(run))).page
    draw_all(shown)
    figure = shown.locator(MAP)
    expect(figure.locator("tbody")).to_have_count(0)
    figure.locator("details summary").click()
    expect(figure.locator("tbody tr")).to_have_count(1000)
    expect(figure).to_contain_text("The first 1,000 of 1,200 rows.")
    shown.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
    figure.get_by_role("button", name="Copy as CSV").click()
    expect(figure.get_by_role("button", name="Copied")).to_be_visible()
    lines = shown.evaluate("copied").splitlines()
    assert len(lines) == 1201
    assert lines[0].startswith('"client","rounds","weight"')
    assert sum(line.startswith('"\'=SUM(1)",') for line in lines) == 400


def test_runs_are_compared_and_switched_with_arrow_keys(open_page, tmp_path):
    data = page(sample_run(5, 8, name="first"), sample_run(5, 8, seed=1, name="second", rule="samples"))
    data["comparison"]["metrics"][0]["values"] = [0.8, 0.9]
    shown = open_page(saved(tmp_path, data)).page
    row = shown.locator("#compare tbody tr").first
    expect(row.locator("td").nth(1)).to_contain_text("best")
    expect(row.locator("td").nth(0)).not_to_contain_text("best")
    expect(shown.locator("#headline h2")).to_have_text("first")
    shown.get_by_role("tab", name="first").focus()
    shown.keyboard.press("ArrowRight")
    expect(shown.locator("#headline h2")).to_have_text("second")
    expect(shown.get_by_role("tab", name="second")).to_be_focused()
    assert shown.evaluate(
        "() => { const ids = [...document.querySelectorAll('[id]')].map(e => e.id);"
        " return ids.length === new Set(ids).size; }"
    )


def test_paper_is_light_and_has_all_verdicts_and_charts(open_page, tmp_path):
    shown = open_page(saved(tmp_path, page(sample_run(45, 6))), dark=True).page
    shown.locator("html[data-charts]").wait_for(state="attached")
    shown.emulate_media(media="print")
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(shown.locator(".verdicts tbody tr")).to_have_count(45)
    assert shown.evaluate("document.documentElement.dataset.theme") == "light"
    assert (
        shown.locator("figure:visible").count() == shown.locator("figure:visible:has(.main-svg)").count() > 5
    )
    expect(shown.locator("nav")).to_be_hidden()
    shown.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(shown.locator(".verdicts tbody tr")).to_have_count(30)
    assert shown.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_theme_button_works_without_storage(open_page, tmp_path):
    opened = open_page(saved(tmp_path, page(sample_run(3, 3))))
    shown = opened.page
    shown.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('no permission'); }; }")
    draw_all(shown)
    shown.get_by_role("button", name="Dark theme").click()
    expect(shown.get_by_role("button", name="Light theme")).to_be_visible()
    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 22, 27)"
    assert opened.errors == []


def test_a_page_that_cannot_draw_says_what_to_do(open_page, tmp_path):
    path = saved(tmp_path, page(sample_run(3, 3)))
    shown = open_page(path, javascript=False).page
    assert "Allow JavaScript" in shown.content()
    text = path.read_text().replace("typeof DecompressionStream", "typeof NoSuchThing")
    path.write_text(text[: text.index("<meta http")] + text[text.index("<meta name=") :])
    expect(open_page(path).page.get_by_text("Open the file with a current version")).to_be_visible()


def test_a_changed_script_is_refused(open_page, tmp_path):
    path: Path = saved(tmp_path, page(sample_run(3, 3)))
    path.write_text(path.read_text().replace("</body>", "<script>window.hacked = 1</script></body>"))
    assert open_page(path).page.evaluate("window.hacked") is None


def test_the_data_in_the_file_are_the_data_that_were_given(tmp_path):
    data = page(sample_run(rounds=2, names=HOSTILE))
    packed = saved(tmp_path, data).read_text().split('id="packed-data">')[1].split("<")[0]
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == data
