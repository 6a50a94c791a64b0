// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim, IClaims} from "../../src/judge/IClaims.sol";

/// @title Claims that are whatever a test says; the evidence is the claim itself.
contract ToyClaims is IClaims {
    enum Mood {
        WILLING,
        REVERTING,
        GREEDY // uses all the gas it is given
    }

    Mood public mood;
    bytes32 public closed; // a set that was settled or forfeited meanwhile
    bytes32[] public told; // sets that was slashed, in order
    bytes32 public lastLowest; // position
    address public lastChallenger;
    address private _payee;
    mapping(address account => uint32 auditor) private _owing;

    error Closed(bytes32 set);
    error Unwilling();

    function setMood(Mood mood_) external {
        mood = mood_;
    }

    function close(bytes32 set) external {
        closed = set;
    }

    function claim(bytes calldata evidence) external view returns (Claim memory c) {
        c = abi.decode(evidence, (Claim));
        if (c.set == closed) revert Closed(c.set);
    }

    function slash(bytes32 set, bytes32 lowest, address challenger) external {
        if (mood == Mood.REVERTING) revert Unwilling();
        while (mood == Mood.GREEDY) {}
        told.push(set);
        (lastLowest, lastChallenger) = (lowest, challenger);
    }

    /// @notice That auditor said so of whatever is claimed; or of nothing.
    function owe(address account, uint32 auditor) external {
        _owing[account] = auditor;
    }

    function isOwed(Claim calldata, address account, uint32 auditor, bytes calldata) external view returns (bool) {
        return auditor != 0 && _owing[account] == auditor;
    }

    function payTo(address payee) external {
        _payee = payee;
    }

    function payeeOf(address holder) external view returns (address) {
        return _payee == address(0) ? holder : _payee;
    }

    function toldCount() external view returns (uint256) {
        return told.length;
    }
}
