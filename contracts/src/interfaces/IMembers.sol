// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title Who holds seats and places, with which bond, and what a miss or a fall costs.
interface IMembers {
    event Seated(uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 id, uint32 from);
    event SeatLeaving(uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 id, uint32 to);
    event Enrolled(
        uint256 indexed jobId,
        address indexed account,
        uint16 indexed place,
        uint32 id,
        uint32 from,
        uint128 bond,
        uint64 readyUntil
    );
    event Ready(uint256 indexed jobId, address indexed account, uint16 indexed place, uint32 id);
    event PlaceLeaving(uint256 indexed jobId, address indexed account, uint16 indexed place, uint32 id, uint32 to);
    event Missed(
        uint256 indexed jobId,
        address indexed account,
        Role role,
        uint32 indexed id,
        uint32 round,
        Miss kind,
        uint256 cut
    );
    event Fell(
        uint256 indexed jobId,
        address indexed account,
        address indexed winner,
        Role role,
        uint32 id,
        uint32 lostFrom,
        uint256 slashed
    );
    event Released(uint256 indexed jobId, address indexed account, Role role, uint32 indexed id);
    event GatewayAnnounced(address indexed account, string url);

    /// @notice Takes a free seat from the next opening on; locks Terms.providerBond.
    function sit(uint256 jobId, uint16 seat) external returns (uint32 id);
    /// @notice The caller's seat is free after the round that runs, which it still owes.
    function leaveSeat(uint256 jobId) external;
    /// @notice "I computed another model": leaves without a miss, before the round's commit.
    function disagree(uint256 jobId, bytes32 seed, bytes32 root) external;
    /// @notice Cuts the last miss of a seat, which can be taken then. Anyone.
    function cutSeat(uint256 jobId, uint16 seat) external;
    /// @notice Takes a place of the pool: a free one, one whose member is not ready in time, or for a tenth more the cheapest.
    function enrol(uint256 jobId, uint16 place, uint128 bond) external returns (uint32 id);
    /// @notice "I hold manifest, data and model." Counts from the next settlement on; where the caller is a member
    /// of the running round, from its end on, and while none runs at once.
    function ready(uint256 jobId) external;
    function leavePool(uint256 jobId) external;
    /// @notice Cuts a member that gave no word by the end of a committee draw's words. Anyone.
    function cutMember(uint256 jobId, uint32 round, uint32 id) external;
    /// @notice Unlocks the bond of who owes nothing any more. Anyone.
    function release(uint256 jobId, Role role, uint32 id) external;
    /// @notice Says where the caller serves its blocks; the last one said counts. Visible ASCII (RFC 3986).
    function announceGateway(string calldata url) external;

    /// @return role and id of the account's seat or place in the job; id 0 for none
    function idOf(uint256 jobId, address account) external view returns (Role role, uint32 id);
    function bondOf(uint256 jobId, Role role, uint32 id) external view returns (uint256);
}
