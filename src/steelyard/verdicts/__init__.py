"""Why clients counted as much as they did, in one sentence each, from the record of a run."""
