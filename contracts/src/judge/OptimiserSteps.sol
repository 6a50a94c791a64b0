// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Formulas} from "./Formulas.sol";
import {IOneStep, Need} from "./IOneStep.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";

/// @title Family 4: the optimisers, chapter 15 of SPEC-STEP.md.
/// @notice All of its operations have formulas, which sdk/atoll/numerics/trace/opcodes.py says. g =
/// g · k is SCALE_BY of family 3.
contract OptimiserSteps is IOneStep {
    /// @inheritdoc IOneStep
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory next)
    {
        uint256 reads = Formulas.optimiserReads(op, attributes);
        if (reads == 0) revert NoSuchOperation(op);
        next = Operands.position(reads, opened.length, element, Operands.word(attributes, 0));
        // The diagonal is opened twice, for row and column.
        if (op == Op.MUON_ACROSS && next.input > 1) --next.input;
    }

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        return Operands.store(Formulas.optimiserValue(op, attributes, element, Operands.loadAll(opened)), 4);
    }
}
