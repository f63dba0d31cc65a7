"""Models that read a sequence."""

from torch import Tensor, nn


class CharLSTM(nn.Module):
    """Reads characters one by one and tells the next."""

    def __init__(self, symbols: int, embed: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, embed)
        self.lstm = nn.LSTM(embed, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, symbols)

    def forward(self, inputs: Tensor) -> Tensor:
        """Character numbers [B, L] to logits [B, symbols], from where the last character has left it."""
        states, _ = self.lstm(self.embedding(inputs))
        logits: Tensor = self.output(states[:, -1])
        return logits
