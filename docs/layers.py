"""The layers of steelyard, lowest first. A part may import only from the layers before its own."""

LAYERS: list[set[str]] = [
    {"errors", "types", "seeds", "texts", "frames"},
    {"devices", "importing", "schedules", "annotations", "threads"},
    {"components", "contents"},
    {"layout", "settings", "tensor_files", "nn", "metrics", "verdicts"},
    {"task"},
    {"objectives", "sharing", "weighing", "combining", "sites"},
    {"algorithm", "attacks"},
    {"data"},
    {"client", "server"},
    {"engines"},
    {"runs"},
    {"page"},
    {"observers"},
    {"runnable"},
    {"resumable"},
    {"simulation"},
    {"specs"},
    {"functional", "studies", "flower"},
    {"report"},
    {"cli"},
]
