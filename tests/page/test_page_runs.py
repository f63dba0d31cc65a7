"""The page of recorded runs in a real browser: saved, large, with hostile names, and live."""

import re
from pathlib import Path

import numpy as np
from page_files import draw_all
from playwright.sync_api import expect
from sample_data import HOSTILE
from served import served
from test_run_page import CLIENTS, recorder_in, round_of

import steelyard as sy
from steelyard.page.follower import Follower
from steelyard.page.report import write_report
from steelyard.runs.reader import Run
from steelyard.runs.writer import Recorder
from steelyard.types import Round
from steelyard.verdicts.reasons import to_json
from steelyard.weighing import IvarVb

MAX_BYTES = 6_000_000


def test_the_report_of_a_run_says_what_its_verdicts_say(open_page, tmp_path):
    result = sy.run("poisoned", out=tmp_path, rounds=4, weighing="majority", engine="serial")
    opened = open_page(write_report([result.path], tmp_path / "report.html"))
    assert draw_all(opened.page) > 8
    text = opened.page.locator("#verdicts").inner_text()
    said = {client: str(verdict).removeprefix(client).strip() for client, verdict in result.verdicts.items()}
    assert len(said) == 10
    for sentence in said.values():
        assert sentence[1:] in text  # its first letter is a capital there
    expect(opened.page.locator("body")).to_contain_text(f"Test accuracy {result.accuracy:.3f} after 4 rounds")
    expect(opened.page.locator("body")).to_contain_text(f"steelyard run {result.path}/spec.toml")
    assert opened.errors == []
    assert opened.outside() == []


def large_run(path: Path, clients: int = 1000, rounds: int = 300) -> Path:
    """A recorded run of the given size, with figures of a usual length."""
    draw, names = np.random.default_rng(0), [f"client-{number:04}" for number in range(clients)]
    with Recorder(path, None, {"name": "large"}) as recorder:
        recorder.note(reasons=to_json(IvarVb().reasons), rule="IvarVb", rounds=str(rounds))
        for number in range(1, rounds + 1):
            figures = draw.gamma(2.0, size=(clients, 4))
            weights = (figures[:, 0] / figures[:, 0].sum()).tolist()
            rows = [
                {
                    "client": name,
                    "status": "used" if place % 50 else f"sent an update of norm {number}.5",
                    "weight": weights[place] if place % 50 else 0.0,
                    "variance": values[1],
                    "norm": values[2],
                    "loss": values[3],
                    "num_examples": 60,
                    "accuracy": min(values[0] / 4, 1.0),
                }
                for place, (name, values) in enumerate(zip(names, figures.tolist(), strict=True))
            ]
            recorder(Round(number, {"accuracy": 1 - 0.5 / number}, tuple(rows), {"evaluate": 0.1}))
    return path


def test_a_thousand_clients_in_three_hundred_rounds(open_page, tmp_path):
    report = write_report([large_run(tmp_path / "run")], tmp_path / "report.html")
    assert report.stat().st_size < MAX_BYTES
    opened = open_page(report)
    draw_all(opened.page)
    page = opened.page
    expect(page.locator("body")).to_contain_text("1,000 clients × 300 rounds")
    page.get_by_label("name", exact=True).check()
    area = page.locator("#weights figure >> nth=0").locator(".nsewdrag")
    area.scroll_into_view_if_needed()
    area.hover(position={"x": 5, "y": 2})
    expect(page.locator(".tip")).to_contain_text(re.compile(r"client-00\d\d\s*[Rr]ound [1-4]:"))
    assert opened.errors == []
    assert opened.outside() == []


def test_clients_with_hostile_names_in_a_record(open_page, tmp_path):
    rows = tuple(
        {"client": name, "status": f"sent {name}", "weight": 0.0}
        if place % 2
        else {"client": name, "status": "used", "weight": 1.0, "variance": 1.0}
        for place, name in enumerate(
            sorted({name for name in HOSTILE if "\ud800" <= name <= "\udfff" or name})
        )
    )
    with Recorder(tmp_path / "run", None, {"name": HOSTILE[0]}) as recorder:
        recorder.note(reasons=to_json(IvarVb().reasons), rule=HOSTILE[0])
        for number in (1, 2, 3):
            recorder(Round(number, {"accuracy": 0.5}, rows, {"evaluate": 0.0}))
    opened = open_page(write_report([tmp_path / "run"], tmp_path / "report.html"))
    draw_all(opened.page)
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("#verdicts tbody tr").count() == len(rows)
    assert opened.page.locator("img[src=x]").count() == 0
    assert opened.errors == []
    assert opened.outside() == []


def test_a_run_in_progress_is_followed(open_page, tmp_path):
    path = tmp_path / "run"
    with recorder_in(path) as recorder, served(path, Follower) as server:
        opened = open_page(server.url)
        body = opened.page.locator("body")
        expect(body).to_contain_text("No round yet")
        for number in range(1, 6):
            recorder(round_of(number))
            expect(body).to_contain_text(f"after {number} round")
        draw_all(opened.page)
        assert opened.page.locator("#verdicts tbody tr").count() == len(CLIENTS)
        recorder.note(status="finished")
        expect(body).to_contain_text("the run has ended")
        assert opened.errors == []
        assert opened.outside(server.url.rsplit("/", 2)[0]) == []


def test_a_browser_reconnects_to_the_same_address_and_shows_what_it_missed(open_page, tmp_path):
    path = tmp_path / "run"
    with recorder_in(path) as recorder:
        with served(path, Follower) as server:
            opened, address = open_page(server.url), server.url
            recorder(round_of(1))
            expect(opened.page.locator("body")).to_contain_text("after 1 round")
        expect(opened.page.locator("body")).to_contain_text("connection lost")
        recorder(round_of(2))
        with served(path, Follower) as server:
            assert server.url == address
            expect(opened.page.locator("body")).to_contain_text("after 2 rounds", timeout=30_000)


def test_axe_finds_nothing_serious_in_a_real_report(open_page, axe, tmp_path):
    with recorder_in(tmp_path / "run") as recorder:
        for number in range(1, 6):
            recorder(round_of(number))
    opened = open_page(write_report([Run(tmp_path / "run").path], tmp_path / "report.html"), dark=True)
    draw_all(opened.page)
    assert axe(opened.page) == []
