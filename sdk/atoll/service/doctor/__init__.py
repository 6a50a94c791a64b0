"""What an operator has to know before money is at stake: one finding a line, with what to do."""
