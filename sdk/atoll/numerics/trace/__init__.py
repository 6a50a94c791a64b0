"""The trace of a step: its tensors, made by operations of which the EVM can do one element."""
