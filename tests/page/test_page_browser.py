"""The saved page in a real browser: it draws every sample, answers mouse and keyboard, and trusts no text."""

import base64
import gzip
import json
from pathlib import Path

import pytest
from page_files import SAMPLES, draw_all, saved
from playwright.sync_api import Page, expect
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
    assert {rows.nth(row).locator("bdi").inner_text() for row in range(3)} == {"site-037", "site-038", "site-039"}
    expect(rows.nth(0)).to_contain_text("adversary in this simulation")
    expect(rows.nth(5)).not_to_contain_text("adversary")
    shown.get_by_label("Sort by").select_option("name")
    expect(rows.nth(0)).to_contain_text("site-000")
    shown.get_by_role("button", name="Show all 40").click()
    expect(rows).to_have_count(40)
    shown.get_by_label("Find").fill("site-01")
    expect(rows).to_have_count(10)


def labels(shown: Page) -> list[str]:
    return shown.locator(f"{MAP} >> .ytick text").all_text_contents()


def test_the_rows_of_the_heat_map_can_be_sorted(open_page, tmp_path):
    data = page(sample_run(10, 30, adversaries=3))
    shares = {client["id"]: client["share"] for client in data["runs"][0]["clients"]}
    shown = open_page(saved(tmp_path, data)).page
    draw_all(shown)
    assert labels(shown) == sorted(shares, key=lambda name: -shares[name])
    shown.locator(MAP).get_by_label("name").check()
    assert labels(shown) == sorted(shares)
    data["runs"][0]["group_order"] = [9, 0, 8, 1, 7, 2, 6, 3, 5, 4]
    shown = open_page(saved(tmp_path, data)).page
    draw_all(shown)
    shown.locator(MAP).get_by_label("behaviour").check()
    assert labels(shown)[:3] == ["site-009", "site-000", "site-008"]


def test_the_reason_is_shown_at_the_mouse(open_page, tmp_path):
    run = sample_run(4, 4)
    run["cells"]["weight"][1][2], run["cells"]["rejected"][1][2], run["cells"]["reason"][1][2] = 0.0, 1, 0
    run["clients"][2]["id"] = "<b>%{x}"
    shown = open_page(saved(tmp_path, page(run))).page
    draw_all(shown)
    shown.locator(MAP).get_by_label("name").check()
    area = shown.locator(f"{MAP} >> .nsewdrag")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    area.hover(position={"x": box["width"] * 3 / 8, "y": box["height"] * 5 / 8})
    tip = shown.locator(".tip")
    expect(tip).to_contain_text("<b>%{x}")
    expect(tip).to_contain_text("round 2: weight 0 %, 0.0 × the equal share.".replace(" %", "\u202f%").replace(" ×", "\u202f×"))
    expect(tip).to_contain_text("Rejected: sent a mean that is not finite")
    shown.locator("h1").hover()
    expect(tip).to_be_hidden()


INK = """async ([row, column, rows, columns]) => {
  const image = new Image();
  image.src = document.querySelector('#weights .plot').layout.images[0].source;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext('2d');
  context.drawImage(image, 0, 0);
  const [w, h] = [Math.floor(image.width / columns), Math.floor(image.height / rows)];
  const {data} = context.getImageData(Math.ceil(column * image.width / columns) + 1, Math.ceil(row * image.height / rows) + 1, w - 3, h - 3);
  let [inked, warm] = [0, 0];
  for (let i = 0; i < data.length; i += 4) { if (data[i + 3] > 128) { inked++; if (data[i] > data[i + 2] + 60) warm++; } }
  return [inked / ((w - 3) * (h - 3)), warm / Math.max(1, inked)];
}"""


@pytest.mark.parametrize("dark", [False, True])
def test_rejected_cells_are_hatched_and_absent_ones_dotted(open_page, tmp_path, dark):
    run = sample_run(3, 4)
    run["cells"]["weight"][1][0], run["cells"]["rejected"][1][0] = 0.0, 1
    run["cells"]["weight"][2][1] = None
    shown = open_page(saved(tmp_path, page(run)), dark=dark).page
    draw_all(shown)
    shown.locator(MAP).get_by_label("name").check()
    hatched, warm = shown.evaluate(INK, [0, 1, 3, 4])
    assert 0.15 < hatched < 0.7
    assert warm > 0.9
    dotted, warm = shown.evaluate(INK, [1, 2, 3, 4])
    assert 0.005 < dotted < 0.15
    assert warm == 0
    assert shown.evaluate(INK, [2, 2, 3, 4])[0] == 0


def test_hatching_is_as_fine_after_zooming(open_page, tmp_path):
    run = sample_run(3, 4)
    run["cells"]["weight"][1][0], run["cells"]["rejected"][1][0] = 0.0, 1
    shown = open_page(saved(tmp_path, page(run))).page
    draw_all(shown)
    shown.locator(MAP).get_by_label("name").check()
    before = shown.evaluate(INK, [0, 1, 3, 4])[0]
    shown.evaluate("document.querySelector('#weights figure').figure.setZoom([1.5, 2.5], [0.5, -0.5])")
    assert shown.evaluate(INK, [0, 0, 1, 1])[0] == pytest.approx(before, abs=0.05)
    shown.locator(MAP).get_by_role("button", name="Reset zoom").click()
    assert shown.evaluate(INK, [0, 1, 3, 4])[0] == pytest.approx(before, abs=0.01)


def test_the_keyboard_reads_the_heat_map_and_follows_a_client(open_page, tmp_path):
    run = sample_run(6, 8)
    run["cells"]["weight"][2][1] = None
    shown = open_page(saved(tmp_path, page(run))).page
    draw_all(shown)
    shown.locator(MAP).get_by_label("name").check()
    shown.keyboard.press("Tab")
    said = shown.locator("#announce")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        shown.keyboard.press(key)
    expect(said).to_contain_text("site-001")
    expect(said).to_contain_text("round 3: did not take part.")
    assert shown.locator(".tip").inner_text().split() == said.inner_text().split()
    chips = shown.locator(".chips li")
    shown.keyboard.press("Home")
    for _ in range(9):
        shown.keyboard.press("ArrowUp")
    expect(said).to_contain_text("site-000")
    expect(said).to_contain_text("round 1")
    names = chips.all_inner_texts()
    shown.keyboard.press("End")
    shown.keyboard.press("PageDown")
    shown.keyboard.press("Enter")
    expect(said).to_have_text("site-005 is now among the chosen clients.")
    assert chips.last.inner_text().startswith("site-005")
    assert len(set(names) | set(chips.all_inner_texts())) == len(chips.all_inner_texts())
    shown.keyboard.press("+")
    expect(shown.locator(MAP).get_by_role("button", name="Reset zoom")).to_be_visible()
    shown.keyboard.press("0")
    expect(shown.locator(MAP).get_by_role("button", name="Reset zoom")).to_be_hidden()


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
    shown.get_by_label("Add a client").fill("nobody")
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
    assert shown.evaluate("document.querySelectorAll('[id]').length === new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size")


def test_paper_is_light_and_has_all_verdicts_and_charts(open_page, tmp_path):
    shown = open_page(saved(tmp_path, page(sample_run(45, 6))), dark=True).page
    shown.locator("html[data-charts]").wait_for(state="attached")
    shown.emulate_media(media="print")
    shown.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(shown.locator(".verdicts tbody tr")).to_have_count(45)
    assert shown.evaluate("document.documentElement.dataset.theme") == "light"
    assert shown.locator("figure:visible").count() == shown.locator("figure:visible:has(.main-svg)").count() > 5
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
