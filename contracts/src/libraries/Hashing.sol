// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title Every hash that binds what someone says to a chain, a contract and a slot.
/// @dev Long encodings are concatenations of shorter ones: all fields are single words, so this equals one `abi.encode`.
library Hashing {
    bytes32 internal constant COMMIT = keccak256("atoll.commit.v1");
    bytes32 internal constant AUDIT = keccak256("atoll.audit.v1");
    bytes32 internal constant DATA = keccak256("atoll.data.v1");
    bytes32 internal constant EVIDENCE = keccak256("atoll.evidence.v1");
    bytes32 internal constant VERDICT = keccak256("atoll.verdict.v1");
    bytes32 internal constant FAULT = keccak256("atoll.fault.v1");
    bytes32 internal constant CLAIM = keccak256("atoll.claim.v1");

    /// (chain, rounds contract, job, round, attempt): completed by a seat or a role where one is named.
    struct Slot {
        address rounds;
        uint256 jobId;
        uint32 round;
        uint16 attempt;
    }

    function slotHash(Slot memory slot) internal view returns (bytes32) {
        return keccak256(encodeSlot(slot));
    }

    function commitment(Slot memory slot, uint16 seat, address sender, Reveal calldata reveal_)
        internal
        view
        returns (bytes32)
    {
        return keccak256(
            bytes.concat(
                abi.encode(COMMIT),
                encodeSlot(slot),
                abi.encode(seat, sender, reveal_.traceRoot, reveal_.updateRoot, reveal_.optimiserRoot),
                abi.encode(
                    reveal_.steps,
                    reveal_.reset,
                    reveal_.salt,
                    keccak256(reveal_.updateCid),
                    keccak256(reveal_.traceCid)
                )
            )
        );
    }

    function accumulateCommit(bytes32 accumulator, uint16 seat, bytes32 commitment_) internal pure returns (bytes32) {
        return keccak256(abi.encode(accumulator, seat, commitment_));
    }

    /// @param opening the optimiser root that the seat's round opens with
    function accumulateReveal(bytes32 accumulator, uint16 seat, bytes32 commitment_, bytes32 opening)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(accumulator, seat, commitment_, opening));
    }

    /// @return what is kept of a settled round, so that a claim about it can be proved
    function roundFacts(bytes32 dataSeed_, bytes32 revealAccumulator, bytes32 parent) internal pure returns (bytes32) {
        return keccak256(abi.encode(dataSeed_, revealAccumulator, parent));
    }

    function auditSeed(Slot memory slot, bytes32 commits, bytes32 reveals, bytes32 beacon)
        internal
        view
        returns (bytes32)
    {
        return keccak256(bytes.concat(abi.encode(AUDIT), encodeSlot(slot), abi.encode(commits, reveals, beacon)));
    }

    /// @param source the beacon block's hash, or the first audit seed of the round before
    function dataSeed(Slot memory slot, bytes32 source) internal view returns (bytes32) {
        return keccak256(bytes.concat(abi.encode(DATA), encodeSlot(slot), abi.encode(source)));
    }

    function evidenceRoot(Slot memory slot, RoundState storage s) internal view returns (bytes32) {
        return keccak256(
            bytes.concat(
                abi.encode(EVIDENCE),
                encodeSlot(slot),
                abi.encode(s.revealed, s.accepted, s.rejected, s.unresolved, s.caught, s.dutiful),
                abi.encode(s.auditSeed, s.revealAccumulator)
            )
        );
    }

    function verdictHash(Slot memory slot, Verdict calldata verdict) internal view returns (bytes32) {
        return keccak256(
            bytes.concat(
                abi.encode(VERDICT),
                encodeSlot(slot),
                abi.encode(
                    verdict.evidenceRoot, verdict.cutBlockHash, verdict.mergedDigest, keccak256(verdict.mergedCid)
                ),
                abi.encode(
                    verdict.claimsRoot, verdict.cumulativeTotal, verdict.tokensRoot, verdict.tokensTotal, verdict.parent
                )
            )
        );
    }

    function faultId(address rounds, uint256 jobId, uint32 round, Offence offence, uint16 index)
        internal
        view
        returns (bytes32)
    {
        return keccak256(abi.encode(FAULT, block.chainid, rounds, jobId, round, offence, index));
    }

    /// @notice Leaf of a claims tree, hashed twice so that no inner node passes for one.
    function claimLeaf(address jobs, uint256 jobId, address account, uint256 cumulative)
        internal
        view
        returns (bytes32)
    {
        bytes32 inner = keccak256(abi.encode(CLAIM, block.chainid, jobs, jobId, account, cumulative));
        return keccak256(bytes.concat(inner));
    }

    /// @return id of the lock that holds a member's bond; stakes keep one per account and role under it
    function bondLock(uint256 jobId) internal pure returns (bytes32) {
        return keccak256(abi.encode("atoll.bond.v1", jobId));
    }

    function reportLock(uint256 jobId, uint32 round, uint16 index) internal pure returns (bytes32) {
        return keccak256(abi.encode("atoll.report.v1", jobId, round, index));
    }

    function encodeSlot(Slot memory slot) private view returns (bytes memory) {
        return abi.encode(block.chainid, slot.rounds, slot.jobId, slot.round, slot.attempt);
    }
}
