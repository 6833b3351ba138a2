"""The benchmark harness: measuring one command, the flows made of them, comparing what came back, reporting."""
