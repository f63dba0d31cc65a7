"""The heat map in a real browser: order of rows, tooltip, hatching, keyboard."""

import pytest
from page_files import draw_all, labels, saved
from playwright.sync_api import expect
from sample_data import page, sample_run

MAP = "#weights figure >> nth=0"


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
    expect(tip).to_contain_text(
        "round 2: weight 0 %, 0.0 × the equal share.".replace(" %", "\u202f%").replace(" ×", "\u202f×")
    )
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
  const [x, y] = [Math.ceil(column * image.width / columns) + 1, Math.ceil(row * image.height / rows) + 1];
  const {data} = context.getImageData(x, y, w - 3, h - 3);
  let [inked, warm] = [0, 0];
  for (let i = 0; i < data.length; i += 4)
    if (data[i + 3] > 128) { inked++; if (data[i] > data[i + 2] + 60) warm++; }
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
