// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Case, RoundOpening} from "../interfaces/IStrikes.sol";
import {Derived} from "../libraries/Derived.sol";
import {MergeShape} from "../libraries/MergeShapes.sol";
import {Stated} from "../libraries/Statements.sol";
import {StrikesBase} from "./StrikesBase.sol";

/// @title Strikes at what follows from a merge statement alone: groups and next exponents.
/// @dev A module: `Strikes` runs it with its own storage, since both are more code than a contract may have.
contract DerivedStrikes is StrikesBase {
    uint256 private constant DERIVED = 1; // what is announced of them

    constructor(address rounds_, address members_, address jobs_) StrikesBase(rounds_, members_, jobs_) {}

    /// @notice As `IStrikes` says.
    function strikeDerived(Case calldata c, RoundOpening calldata o) external {
        (MergeShape memory shape, uint256 f) = _begin(c, DERIVED);
        Stated memory s = _stated(c, shape, f);
        if (s.isSound && Derived.areGroups(c.statement, shape, s)) {
            Derived.requireOpening(c, o, jobs.termsOf(c.jobId).program);
            if (Derived.areExponents(c, o, shape, s)) revert NothingWrong();
        }
        _strike(c);
    }
}
