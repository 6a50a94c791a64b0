"""What the provider's and the verifier's services share: journal, worker process, config, loop."""
