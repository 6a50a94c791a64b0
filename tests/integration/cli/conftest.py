"""What tests of commands leave as it was, and keys that are cheap to derive."""

from tests.unit.cli.conftest import keys_cost_little
from tests.unit.cli.test_command_tree import folder

__all__ = ["folder", "keys_cost_little"]
