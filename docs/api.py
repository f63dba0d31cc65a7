"""Write docs/api.md and docs/metrics.md: the names of `steelyard`, and what scores mean, read from the code.

python docs/api.py
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docstrings import Source, in_line, paragraphs, signature, table, wrapped

import steelyard as sy
from steelyard.report.metric_words import SCORES
from steelyard.specs.field_docs import field_docs
from steelyard.specs.registry import describe

API, METRICS = Path(__file__).with_name("api.md"), Path(__file__).with_name("metrics.md")
GROUPS = {
    "Runs": "run resume Federation Result RoundEvent",
    "What is trained": "Algorithm Training Server Task bayesian",
    "Data": "Client Population examples Dataset",
    "One rule in your own loop": "weigh Weighed combine Combined",
    "Recorded runs": "Run load_model Recorder",
    "Observers": " ".join(f"observers.{name}" for name in sy.observers.__all__),
    "Errors and warnings": "SteelyardError InputError ClientError SteelyardWarning",
}
MEMBERS = {
    "Federation": "run resume",
    "Result": "best_model best_round best_score accuracy verdicts show to_frame to_pandas clients_frame",
    "RoundEvent": "model stop",
    "Run": "rounds clients timings verdicts spec meta rounds_frame clients_frame",
    "observers.Tracker": "begin __call__ end",
    "Dataset": "num_classes",
}
"""What programs use of a class, besides its fields; the rest is for steelyard itself."""
ONLY_RETURNED = ("Result", "RoundEvent", "Weighed", "Combined", "ClientError", "observers.Tracker")
"""Classes that users do not make."""
BEGIN = """# Names in Python

Written by `python docs/api.py` from the code. [What the scores mean](metrics.md) is another page.
`Choice` is the name of a part, or a table with its name and settings, as in a spec: `"majority"`,
`{"name": "krum", "f": 2}`. `steelyard list` shows all names.
"""


def api() -> str:
    """The page of names."""
    lines = [BEGIN]
    lines += [f"* {title}: {' · '.join(map(link, names.split()))}" for title, names in GROUPS.items()]
    for title, names in GROUPS.items():
        lines += ["", f"## {title}"]
        for name in names.split():
            lines += ["", f"### {heading(name)}", "", *described(name, found(name))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def metrics() -> str:
    """The page of scores."""
    lines = ["# What the scores mean", "", "Written by `python docs/api.py` from the code.", ""]
    lines += ["## In the record of a run", "", "The data of a run decide which of them it has.", ""]
    lines += table("score | what it is", ((f"`{name}`", words) for name, words in SCORES.items()))
    lines += ["", "## By name", "", "For `[metrics]` in a spec, or `metrics={...}` in Python.", ""]
    rows = [(f"`{each['name']}`", settings(each["settings"]), each["about"]) for each in describe("metrics")]
    return "\n".join([*lines, *table("metric | settings | what it is", rows)]) + "\n"


def settings(values: dict[str, Any]) -> str:
    return ", ".join(f"`{name} = {value}`" for name, value in values.items())


def found(name: str) -> Any:
    """What has this name: "run", "observers.CSV"."""
    return getattr(sy.observers, name.partition(".")[2]) if "." in name else getattr(sy, name)


def heading(name: str) -> str:
    return ("class " if inspect.isclass(found(name)) else "") + f"sy.{name}"


def link(name: str) -> str:
    return f"[`{name}`](#{heading(name).lower().replace('.', '').replace(' ', '-')})"


def described(name: str, thing: Any) -> Iterator[str]:
    """A function: how it is called, and what it does. A class: how it is made, its fields and members."""
    if name not in ONLY_RETURNED:
        yield from signature(f"sy.{name}", thing)
    yield from paragraphs(inspect.getdoc(thing))
    if not inspect.isclass(thing):
        return
    if "__init__" in Source(thing).functions and name not in ONLY_RETURNED:
        yield from paragraphs(thing.__init__.__doc__)
    members = {each: inspect.getattr_static(thing, each) for each in MEMBERS.get(name, "").split()}
    for field, about in field_docs(thing).items():
        yield from wrapped(f"* `{field}`: {about}") if about else ()
    for each, member in members.items():
        if not callable(member) or is_short(member):
            call = f"{each}()" if callable(member) else each
            yield from wrapped(f"* `{call}`: {in_line(inspect.getdoc(member))}")
    for each, member in members.items():
        if callable(member) and not is_short(member):
            owner = re.findall("[A-Z][a-z]+", name)[-1].lower()
            call = owner if each == "__call__" else f"{owner}.{each}"
            yield from ["", f"#### {call}", "", *signature(call, member), *paragraphs(inspect.getdoc(member))]


def is_short(method: Any) -> bool:
    """Whether it takes no arguments."""
    return len(inspect.signature(method).parameters) == 1


if __name__ == "__main__":
    API.write_text(api(), "utf-8")
    METRICS.write_text(metrics(), "utf-8")
