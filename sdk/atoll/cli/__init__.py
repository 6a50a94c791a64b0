"""The `atoll` command's parts. Heavy imports (torch, web3) happen inside commands only."""
