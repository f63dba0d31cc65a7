"""Recurrent models."""

from torch import Tensor, nn


class CharLSTM(nn.Module):
    """An LSTM that reads a sequence of characters and predicts the next one."""

    def __init__(self, symbols: int, embed: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, embed)
        self.lstm = nn.LSTM(embed, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, symbols)

    def forward(self, inputs: Tensor) -> Tensor:
        """Character indices [B, L] to logits [B, symbols], from the state after the last character."""
        states, _ = self.lstm(self.embedding(inputs))
        logits: Tensor = self.output(states[:, -1])
        return logits
