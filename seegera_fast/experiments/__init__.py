"""Many runs: trials, the matrix of the paper, summaries, the page of results."""
