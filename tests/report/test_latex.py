"""Tables for LaTeX."""

from steelyard.report.latex import comparison_latex, grid_latex, latex_text
from steelyard.studies.grid_results import Entry, GridResults


def test_characters_that_mean_something_to_latex_are_escaped() -> None:
    assert latex_text("a_b & 5 % of $x$ #1 {~^\\}") == (
        r"a\_b \& 5 \% of \$x\$ \#1 \{\textasciitilde{}\textasciicircum{}\textbackslash{}\}"
    )
    assert latex_text("0.5 ± 0.1\n\x1b[31mred") == r"0.5 $\pm$ 0.1 red"


def test_a_comparison_has_a_row_for_each_spec() -> None:
    scores = {"accuracy": {"mean": 0.5, "sd": 0.01}}
    rows = [{"name": "fed_avg", "metrics": scores}, {"name": "b", "metrics": {}}]
    assert comparison_latex(rows, ["accuracy"]) == "\n".join(
        [
            r"% \usepackage{booktabs}",
            r"\begin{tabular}{lr}",
            r"\toprule",
            r" & accuracy \\",
            r"\midrule",
            r"fed\_avg & 0.5000 $\pm$ 0.0100 \\",
            r"b & -- \\",
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def test_a_grid_has_a_tabular_with_a_title_for_each_panel_and_the_worst_of_each_row() -> None:
    entries = {("p", "r", "c"): Entry(0.5, 0.1), ("q", "r", "c"): Entry(error="it broke")}
    text = grid_latex(GridResults("accuracy", ("p", "q"), ("r",), ("c",), entries))
    assert text.count(r"\begin{tabular}") == 2
    assert r"r & 0.50 $\pm$ 0.10 \\" in text
    assert r"r & failed \\" in text
    assert r"\multicolumn{2}{l}{accuracy; q} \\" in text
    entries = {("", "r", "c"): Entry(0.5, 0.1), ("", "r", "d"): Entry(0.25)}
    text = grid_latex(GridResults("accuracy", ("",), ("r",), ("c", "d"), entries))
    assert r" & c & d & worst \\" in text
    assert r"r & 0.50 $\pm$ 0.10 & 0.25 & 0.25 \\" in text
