// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

interface IEventLog {
    /// @notice How many events of a job there are (4 bytes), then 28 bytes of a hash over them in
    /// order; job 0 has those that belong to no job, and the creation of every job.
    function logHead(uint256 jobId) external view returns (bytes32);
}

/// @title Events each of which is in a word of state, too: one word for each job.
/// @notice Who reads logs compares them with that word: an endpoint that hides, loses or makes up
/// one gives others than the state tells, and a state is what blocks are hashes of.
/// @dev SPEC-ROUNDS.md, "The log of a job", is the rule. `emit` would encode the fields a second
/// time, so no contract with this base uses it; those that no view is folded from have not this base.
abstract contract EventLog is IEventLog {
    mapping(uint256 jobId => bytes32) private _logHeads;

    /// @inheritdoc IEventLog
    function logHead(uint256 jobId) public view returns (bytes32) {
        return _logHeads[jobId];
    }

    /// @param topics one to four words, the event's selector first
    /// @param data the fields that are no topics
    function _log(uint256 jobId, bytes memory topics, bytes memory data) internal {
        _logAfter(jobId, 0, topics, data);
    }

    /// @param other head of another contract: what that one has logged of the job so far is before
    /// this event, and what it logs later behind it
    function _logAfter(uint256 jobId, bytes32 other, bytes memory topics, bytes memory data) internal {
        bytes32 before = _logHeads[jobId];
        bytes32 digest = keccak256(
            abi.encode(before, other, address(this), block.number, block.timestamp, keccak256(topics), keccak256(data))
        );
        _logHeads[jobId] = bytes32(((uint256(before) >> 224) + 1) << 224 | uint256(digest) >> 32);
        assembly ("memory-safe") {
            let size := mload(data)
            let at := add(data, 32)
            let first := mload(add(topics, 32))
            switch mload(topics)
            case 32 { log1(at, size, first) }
            case 64 { log2(at, size, first, mload(add(topics, 64))) }
            case 96 { log3(at, size, first, mload(add(topics, 64)), mload(add(topics, 96))) }
            default { log4(at, size, first, mload(add(topics, 64)), mload(add(topics, 96)), mload(add(topics, 128))) }
        }
    }
}
