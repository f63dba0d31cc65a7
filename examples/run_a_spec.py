"""Run a preset with some settings changed, and read the result.

python examples/run_a_spec.py
"""

import steelyard as sy

result = sy.run(
    "fedprox",
    rounds=15,
    seed=1,
    objective={"mu": 0.05},
    data={"clients": 8, "partition": {"name": "dirichlet", "alpha": 0.1}},
    out="runs",
)

print("round  accuracy   loss   worst 10 % of clients")
for row in result.history[2::3]:
    print(
        f"{row['round']:5d}  {row['accuracy']:8.3f}  {row['loss']:.3f}  {row['client_accuracy_worst10']:8.3f}"
    )

print("\nclients in the last round")
for row in result.clients:
    if row["round"] == 15:
        print(
            f"{row['client']}: {row['num_examples']:4d} samples, weight {row['weight']:.3f}, "
            f"‖update‖ {row['norm']:.2f}, accuracy {row['accuracy']:.3f}"
        )

# The run is recorded: the complete spec, one row per client and round, and the model.
run = sy.Run(result.path)
print(
    f"\n{run.path} has {len(run.rounds)} rounds, {len(run.clients)} client rows, status {run.meta['status']}"
)
model = sy.load_model(run.path)
print(f"the model has {sum(p.numel() for p in model.parameters()):,} parameters")
