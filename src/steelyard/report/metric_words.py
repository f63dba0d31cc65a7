"""What the scores of a round mean, for `steelyard list scores`."""

SCORES = {
    "accuracy": "share of the common test set that is classified correctly",
    "nll": "mean negative log-likelihood of the common test set, in nats",
    "ece": "expected calibration error: mean gap between confidence and accuracy, 15 bins",
    "brier": "Brier score: mean squared distance of the probabilities from the right class",
    "mse": "in regression, the mean squared error on the common test set",
    "client_accuracy": "mean over the clients of the accuracy on each client's own test data",
    "client_accuracy_weighted": "the same, weighted by the clients' numbers of training examples",
    "client_accuracy_sd": "standard deviation of the clients' accuracies",
    "client_accuracy_worst10": "mean accuracy of the worst tenth of the clients",
    "client_accuracy_min": "lowest accuracy of a client",
    "client_accuracy_max": "highest accuracy of a client",
    "client_mse": "in regression, the mean over the clients of the error on each client's own test data",
    "temperature": "the temperature that was fitted on held-out examples (data.holdout)",
    "nll_scaled": "nll at that temperature; ece_scaled and brier_scaled likewise",
    "loss": "weighted mean of the training losses that the clients report",
    "used": "number of clients whose reply was used in the round",
    "rejected": "number of clients whose reply was rejected, or that failed",
    "effective_clients": "1 if one client has all the weight, J if all J clients weigh the same",
    "weight_accuracy_spearman": "rank correlation of the clients' weights with their accuracies",
    "bytes": "bytes that went down and up in the round",
}
