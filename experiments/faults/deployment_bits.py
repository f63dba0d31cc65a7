"""Run presets as real deployments, over Flower with TLS and keys, and compare them with the simulation.

    python experiments/faults/deployment_bits.py

Each preset runs with three sites on this machine (`steelyard deploy try`), and again with `engine=serial`.
The tables `rounds` and `clients` and the bytes of the model must be the same. Writes
results/deployment_bits.md.
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import steelyard as sy
from steelyard.flower.trial import try_deployment
from steelyard.runs.folder import MODEL
from steelyard.specs.schema import load_spec

RESULTS = Path(__file__).parent / "results"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "`fedavg weighing=majority`: a rule that remembers": ("fedavg", {"weighing": "majority"}),
    "`fedbac`: offers to the sites": ("fedbac", {}),
    "`robust-barycenter`: posteriors": ("robust-barycenter", {}),
    "`chfl`: private bodies": ("chfl", {}),
    "`chfl clients_per_round=2`: a sample of the sites": ("chfl", {"clients_per_round": 2}),
}


def compare(preset: str, changed: dict[str, Any], rounds: int, folder: Path) -> str:
    """One row of the table: what is equal, and the median seconds of a round."""
    settings = {"data.clients": 3, "rounds": rounds, "engine": "serial", **changed}
    spec = load_spec(preset, settings)
    start = time.monotonic()
    deployed = try_deployment(spec, folder / "trial", log=lambda text: None)
    seconds = time.monotonic() - start
    simulated = sy.run(spec, out=folder / "simulated")
    assert deployed.path is not None
    assert simulated.path is not None
    models = [(result.path / MODEL).read_bytes() for result in (deployed, simulated) if result.path]
    same = [
        [*deployed.history] == [*simulated.history],
        [*deployed.clients] == [*simulated.clients],
        models[0] == models[1],
    ]
    return " | ".join([*("equal" if each else "**differs**" for each in same), f"{seconds:.0f}"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    lines = [
        "# Deployments beside simulations",
        "",
        f"`python experiments/faults/deployment_bits.py --rounds {options.rounds}`: three sites, over Flower",
        "",
        "| spec | rounds | clients | model | seconds, start included |",
        "|---|---|---|---|---|",
    ]
    for name, (preset, changed) in CASES.items():
        with TemporaryDirectory() as folder:
            lines.append(f"| {name} | {compare(preset, changed, options.rounds, Path(folder))} |")
        print(lines[-1], flush=True)
        (RESULTS / "deployment_bits.md").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
