"""What the rest uses and knows nothing of graphs: atomic writes, signals, hints, tables, plots."""
