"""Flower's simulation: Message API, FedAvg, one SuperNode per client, one CPU per running client.

`run_simulation` uses the same simulation runtime as `flwr run`, without starting a SuperLink.
"""

import os
import time
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from contenders.setting import (
    Setting,
    argument,
    evaluate,
    read,
    say_round,
    say_versions,
    table,
    train,
)


class SameClients(FedAvg):
    """FedAvg that assigns a client to each node, so that all contenders train the same clients."""

    def __init__(self, setting: Setting) -> None:
        count, sampled = setting.facts["clients"], len(setting.cohorts[0])
        super().__init__(
            fraction_train=sampled / count,
            min_train_nodes=sampled,
            min_available_nodes=count,
            fraction_evaluate=0.0,
        )
        self.setting = setting

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.began = time.perf_counter()
        nodes = super().configure_train(server_round, arrays, config, grid)
        return [
            Message(
                content=RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "client": client})}),
                message_type=MessageType.TRAIN,
                dst_node_id=node.metadata.dst_node_id,
            )
            for node, client in zip(nodes, self.setting.cohorts[server_round - 1], strict=True)
        ]


def server(setting: Setting) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        model, test, strategy = setting.model(), setting.test(), SameClients(setting)

        def assess(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            accuracy = None
            if setting.evaluates:
                model.load_state_dict(arrays.to_torch_state_dict())
                accuracy = evaluate(model, test)
            if number:
                say_round(number, time.perf_counter() - strategy.began, accuracy)
            return None if accuracy is None else MetricRecord({"accuracy": accuracy})

        initial = ArrayRecord(model.state_dict())
        strategy.start(grid, initial, num_rounds=len(setting.cohorts), evaluate_fn=assess)

    return app


def client(folder: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def work(message: Message, context: Context) -> Message:
        setting = read(folder)
        config = message.content["config"]
        number = config["client"]
        model = setting.network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data = table(folder, number)
        train(model, data, setting.training, setting.order(config["server-round"], number))
        content = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(data[1])}),
        }
        return Message(content=RecordDict(content), reply_to=message)

    return app


def main() -> None:
    say_versions("flwr", "ray")
    folder = argument()
    setting = read(folder)
    run_simulation(
        server(setting),
        client(folder),
        num_supernodes=setting.facts["clients"],
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": os.cpu_count()},
        },
    )


if __name__ == "__main__":
    main()
