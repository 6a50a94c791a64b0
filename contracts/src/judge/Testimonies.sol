// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IMembersHooks} from "../interfaces/IHooks.sol";
import {IRounds} from "../interfaces/IRounds.sol";
import {Bits} from "../libraries/Bits.sol";
import {Reveals} from "../libraries/Reveals.sol";
import "../types/Types.sol";
import {Claim} from "./IClaims.sol";

/// What a verifier of the round says of a claim that no trace decides.
struct Testimony {
    Claim claim; // of the game
    RoundRecord record; // of the claim's round
    uint32 member; // the caller's id
    bool isRight; // whether its own replay gave what is claimed
}

/// @title What the pool of a round says of a claim, where the job's program has no trace of a step.
/// @notice Each that was ready in the round says once, in each game, whether the claim is right. Two thirds
/// of the pool decide, the same part that certifies what a round merges: whoever has so many needs no game to
/// do what it likes with the model. What they decide pays nobody, so that they gain nothing by a false word.
abstract contract Testimonies {
    using Bits for uint256;

    struct Said {
        uint256 right; // slots
        uint256 wrong;
    }

    mapping(uint256 gameId => Said) private _said;

    error OtherClaim(bytes32 given, bytes32 played);
    error NotInThePool(address account, uint32 member);
    error SaidBefore(uint256 gameId, uint16 slot);

    /// @return isRight as the testimony says
    /// @return decided whether two thirds of the pool say so
    function _testify(
        IRounds rounds,
        IMembersHooks members,
        uint256 gameId,
        bytes32 played,
        address account,
        Testimony calldata t
    ) internal returns (bool isRight, bool decided) {
        bytes32 given = keccak256(abi.encode(t.claim));
        if (given != played) revert OtherClaim(given, played);
        uint256 jobId = uint256(t.claim.set) >> 40;
        Reveals.requireRecord(rounds, jobId, t.claim.round, t.record);
        Holder memory h = members.holderOf(jobId, Role.VERIFIER, t.member);
        bool isIts = h.account == account && h.from <= t.claim.round && t.claim.round < h.to && !h.isSlashed
            && t.record.ready.has(h.index);
        if (!isIts) revert NotInThePool(account, t.member);
        Said storage s = _said[gameId];
        if ((s.right | s.wrong).has(h.index)) revert SaidBefore(gameId, h.index);
        uint256 alike = (t.isRight ? s.right : s.wrong) | Bits.bit(h.index);
        if (t.isRight) s.right = alike;
        else s.wrong = alike;
        return (t.isRight, 3 * alike.popcount() >= 2 * t.record.ready.popcount());
    }
}
