// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAttestationPolicy} from "./interfaces/IAttestationPolicy.sol";
import {Wired} from "./libraries/Wired.sol";

/// @title One transaction a verifier: weights are added up per slot and verdict.
contract CountingPolicy is IAttestationPolicy, Wired {
    struct Tally {
        uint256 weight;
        uint256 signers;
    }

    address public rounds;
    mapping(bytes32 slot => uint256) private _signed;
    mapping(bytes32 slot => mapping(bytes32 verdictHash => Tally)) private _tallies;

    error OnlyRounds(address caller);
    error AlreadySigned(bytes32 slot, uint16 verifier);
    error ProofNotEmpty(uint256 length);

    function wire(address rounds_) external wiring {
        rounds = rounds_;
    }

    /// @inheritdoc IAttestationPolicy
    function record(bytes32 slot, bytes32 verdictHash, uint16 verifier, uint256 weight, bytes calldata proof)
        external
        returns (uint256 total)
    {
        if (msg.sender != rounds) revert OnlyRounds(msg.sender);
        if (proof.length != 0) revert ProofNotEmpty(proof.length);
        uint256 mark = 1 << verifier;
        if (_signed[slot] & mark != 0) revert AlreadySigned(slot, verifier);
        _signed[slot] |= mark;
        Tally storage t = _tallies[slot][verdictHash];
        t.signers |= mark;
        t.weight += weight;
        return t.weight;
    }

    /// @inheritdoc IAttestationPolicy
    function tally(bytes32 slot, bytes32 verdictHash) external view returns (uint256 weight, uint256 signers) {
        Tally storage t = _tallies[slot][verdictHash];
        return (t.weight, t.signers);
    }
}
