"""The `atoll` command's parts. Heavy imports (torch above all) happen inside commands only."""
