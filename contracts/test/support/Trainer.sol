// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";

/// @title Made-up training: every seat's work follows from where it is. A contract, since hashes
/// read calldata.
contract Trainer {
    function workTag(uint256 jobId, uint32 round, uint16 seat, uint256 segment) public pure returns (bytes32) {
        return keccak256(abi.encode("work", jobId, round, seat, segment));
    }

    function digestOf(uint256 jobId, uint32 round, uint16 seat, uint256 segment) public pure returns (bytes32) {
        return keccak256(abi.encode("state", jobId, round, seat, segment));
    }

    function train(uint256 jobId, uint32 round, uint16 seat, bytes32 key, uint256 segments)
        external
        pure
        returns (Reveal memory r)
    {
        for (uint256 i = 0; i < segments; i++) {
            bytes32 masked = workTag(jobId, round, seat, i) ^ Hashing.mask(key, i);
            r.checkpointCommitments = bytes.concat(r.checkpointCommitments, digestOf(jobId, round, seat, i), masked);
        }
        r.updateRoot = keccak256(abi.encode("update", jobId, round, seat));
        (r.keyHash, r.salt) = (keccak256(abi.encode(key)), keccak256(abi.encode("salt", seat)));
        r.updateCid = "bafy-update-of-thirty-six-bytes-long";
    }

    function commitment(
        Hashing.RoundId calldata roundId,
        bytes32 seed,
        uint16 seat,
        address account,
        bytes32 model,
        Reveal calldata r
    ) external view returns (bytes32) {
        return Hashing.commitment(roundId, seed, seat, account, model, r);
    }

    function digest(Hashing.RoundId calldata roundId, bytes32 seed, bytes32 votes, Verdict calldata v)
        external
        view
        returns (bytes32)
    {
        return Hashing.certificate(roundId, seed, votes, v);
    }
}
