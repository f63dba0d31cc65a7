"""A client's side: its data, its training, its evaluation, and what stays private."""
