"""The small form of experiments/faults/deployment_kills.py, and a fault that it cannot time: a site's process
that still works on a question when the connection ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from steelyard.flower.deployment import INVITATION, read_invitation
from steelyard.flower.joining import site_home
from steelyard.flower.messages import Envelope
from steelyard.flower.site_process import SiteProcess
from steelyard.flower.trial import make_trial, site_names
from steelyard.flower.wire import Parcel
from steelyard.specs.schema import load_spec

FOLDER = Path(__file__).parents[2] / "experiments" / "faults"


class GivenUpError(Exception):
    pass


def give_up() -> None:
    raise GivenUpError


def test_a_killed_site_process_and_superlink_change_no_bit(tmp_path: Path) -> None:
    asked = ["--kills", "2", "--kinds", "site process", "SuperLink", "--cuts", "--leaves", "0"]
    asked += ["--rounds", "3", "--epochs", "1", "--results", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, FOLDER / "deployment_kills.py", *asked], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "deployment-kills.json").read_text("utf-8"))
    assert not any(found["faults"].values()), found["details"]
    assert found["seen"]["kills: site process"] == found["seen"]["kills: SuperLink"] == 1
    assert "| runs with differing bits | 0 |" in (tmp_path / "deployment-kills.md").read_text("utf-8")


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[tuple[SiteProcess, list[Parcel]]]:
    """A site's process, which is busy with the first of three questions that was given up, and those."""
    made = make_trial(load_spec("fedavg", {"data.clients": 1}), tmp_path / "trial")
    (site,) = site_names(made)
    invitation = made / f"{site}{INVITATION}"
    spec = read_invitation(invitation).hash
    questions = [Parcel(Envelope(site, spec, "a" * 32, each * 32, 0).header()) for each in "123"]
    process = SiteProcess(invitation, site_home(invitation, site), None, False, 1)
    process.start()
    try:
        pid = process.process.pid  # type: ignore[union-attr]
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(GivenUpError):
            process.answer(questions[0], give_up)
        os.kill(pid, signal.SIGCONT)
        yield process, questions
    finally:
        process.stop()


def test_an_answer_that_nobody_waited_for_is_not_given_to_the_next_question(
    asked: tuple[SiteProcess, list[Parcel]],
) -> None:
    process, (_, second, third) = asked
    for question in (second, third, third):
        answer = process.answer(question, lambda: None)
        assert answer is not None
        assert answer.header["nonce"] == question.header["nonce"]


def test_a_question_that_is_asked_again_gets_the_answer_that_was_on_its_way(
    asked: tuple[SiteProcess, list[Parcel]],
) -> None:
    process, (first, _, _) = asked
    assert process.answer(first, lambda: None) is not None
    assert process.pipe is not None
    assert not process.pipe.poll(0.5), "it was asked twice"
