"""What a list says of components."""

from steelyard.specs import registry


def test_describe_gives_name_first_sentence_and_settings() -> None:
    found = {each["name"]: each for each in registry.describe("objectives")}
    assert found["cross-entropy"] == {
        "name": "cross-entropy",
        "about": "Mean cross-entropy of a batch, or of its tokens or pixels where these have classes.",
        "settings": {"label_smoothing": 0.0, "balance": 0.0, "class_weights": None},
    }
    assert found["proximal"]["settings"]["base"]["name"] == "cross-entropy"
    assert "input_shape" not in registry.describe("models")[0]["settings"]
